/* Sends messages of many sizes around a ring and compares the received data. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static char out[1 << 20], in[1 << 20];

int main(int argc, char **argv)
{
	int rank, size, sum, bad = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	for (size_t n = 1; n <= sizeof out; n *= 4) {
		memset(out, rank + 1, n);
		memset(in, 0, n);
		MPI_Sendrecv(out, n, MPI_CHAR, next, 0, in, n, MPI_CHAR, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < n; i++)
			bad += in[i] != before + 1;
	}
	MPI_Allreduce(&bad, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		puts(sum ? "differs" : "all is well");
	MPI_Finalize();
	return sum != 0;
}
