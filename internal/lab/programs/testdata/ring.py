# Ranks of mpi4py send buffers and objects around a ring.
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
before = (rank - 1) % size
bad = 0
for n in (1, 4096, 1 << 20):
    got = bytearray(n)
    comm.Sendrecv(bytes([rank + 1]) * n, (rank + 1) % size, recvbuf=got, source=before)
    bad += got != bytes([before + 1]) * n
got = comm.sendrecv({"rank": rank}, (rank + 1) % size, source=before)
bad += got != {"rank": before}
bad = comm.allreduce(bad)
if rank == 0:
    print("differs" if bad else "all is well")
raise SystemExit(bad != 0)
