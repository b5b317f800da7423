import time, torch, os, sys, traceback
from torchstone.workers import sandbox, linux, seccomp
from torchstone.workers.pool import *
from torchstone.workers.protocol import *
from torchstone.workers.buffers import make_arena
from torchstone import schema as s
KERN='''
import torch, triton, triton.language as tl
@triton.jit
def k(x,y,n,B:tl.constexpr):
    o=tl.program_id(0)*B+tl.arange(0,B); m=o<n
    tl.store(y+o,tl.maximum(tl.load(x+o,mask=m),0.),mask=m)
def relu_kernel_impl(x):
    y=torch.empty_like(x); n=x.numel(); k[(triton.cdiv(n,1024),)](x,y,n,B=1024); return y
'''
def main():
    name=os.environ['VARIANT']
    t=time.time()
    pool=WorkerPool(WorkerOptions(device_type="cuda",limits=s.Limits(memory_bytes=int(os.environ.get("MEM",str(8<<30))))))
    pool.start()
    w=pool.take(); print(name,"first worker",round(time.time()-t,2),flush=True)
    print([l.name+('' if l.active else '!'+l.detail) for l in w.layers])
    if w.warden_pid:
        from torchstone.workers.handle import descendants,_resident_bytes
        print('rss MB',[ _resident_bytes(p)>>20 for p in descendants(w.warden_pid)])
    for i in range(3):
        t=time.time(); v=pool.take(); t1=time.time()-t; v.kill(); print("take",round(t1,3),"kill",round(time.time()-t-t1,3),flush=True)
    pool.refill(); time.sleep(1); t=time.time(); v=pool.take(); print("spare",time.time()-t); v.kill()
    case=s.Case("x","aten.relu.default",(s.Tensor((1024,),"float32",s.Normal()),))
    impl=s.Implementation("x",case.operator,s.SourceFiles((s.SourceFile("relu.py",KERN),),"relu_kernel_impl"))
    dl=time.monotonic()+60
    print(w.ask(Load("a",impl),dl))
    N=256; dev=torch.device("cuda",0)
    torch.zeros(1,device=dev)
    ar=make_arena(N*8192,dev)
    b=Bind("b",case,N,(Placement(0,8192,1024,"float32"),),(OutputPlacement(Placement(4096,8192,1024,"float32"),(1024,)),),ar.size_bytes,ar.device_handle)
    print(str(w.ask(b,dl))[:600])
    for i in range(N): ar.tensor(i*8192,1024,torch.float32).normal_()
    torch.cuda.synchronize()
    t=time.perf_counter(); r=w.ask(Call("c",0,1),dl); print('compile',time.perf_counter()-t,str(r)[:800])
    for k in (64,256,64,256,64,256):
        t=time.perf_counter(); r=w.ask(Call("c",0,k),dl); dt=time.perf_counter()-t
        print(k,round(dt*1e6,1),str(r)[:100])
    print('CORRECT',all(torch.equal(ar.tensor(i*8192,1024,torch.float32).relu(),ar.tensor(i*8192+4096,1024,torch.float32)) for i in range(N)))
    print('log',w.log_tail[-500:])
    pool.close(); w.kill(); ar.close()
try: main()
except BaseException: traceback.print_exc()
os._exit(0)
