export PYTHONPATH=$PWD/src:$PWD/.deps
go() { VARIANT=$1 timeout 60 python3 probe_tmp/probe.py > $OUT/$1.txt 2>&1; echo "=== $1"; tail -c 1500 $OUT/$1.txt; }
cp src/torchstone/workers/sandbox.py /tmp/orig.py
S=src/torchstone/workers/sandbox.py
go procwrite
if ! grep -q CORRECT $OUT/procwrite.txt; then
sed -i 's/cell.attempt("seccomp".*$/pass/' $S; go noseccomp
cp /tmp/orig.py $S; sed -i 's/    linux.landlock_enforce(ruleset)/    pass/' $S; go nolandlock
cp /tmp/orig.py $S; sed -i 's/    if cell.own_mounts and cell.attempt/    if False and cell.attempt/' $S; go noview
cp /tmp/orig.py $S; sed -i 's/(resource.RLIMIT_DATA, limits.memory_bytes),//' $S; go nodata
fi
cp /tmp/orig.py $S
