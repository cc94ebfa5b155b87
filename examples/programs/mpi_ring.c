/* Sums around a ring of MPI processes, with a checkpoint that the next start goes on from.
 *
 *     mpicc -O2 -o mpi_ring mpi_ring.c
 *     mpirun -np 4 ./mpi_ring STEPS EVERY PAUSE_S FOLDER        (400 20 0.0 ckpt)
 *
 * In each step every process passes a number around the ring until it has met all the others, and adds what it receives.
 * MPI_Allreduce must give the same sum. mpi_ring.py computes the same values.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static long around(long mine, int rank, int size) {
    long sum = mine, passing = mine, received;
    for (int hop = 1; hop < size; hop++) {
        MPI_Sendrecv(&passing, 1, MPI_LONG, (rank + 1) % size, 0, &received, 1, MPI_LONG, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        passing = received;
        sum += received;
    }
    return sum;
}

static void save(const char *path, long step, long value) {
    char unfinished[4096];
    snprintf(unfinished, sizeof unfinished, "%s.tmp", path);
    FILE *file = fopen(unfinished, "w");
    if (!file || fprintf(file, "%ld %ld\n", step, value) < 0 || fclose(file) || rename(unfinished, path)) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 400, every = argc > 2 ? atol(argv[2]) : 20;
    double pause_s = argc > 3 ? atof(argv[3]) : 0.0;
    const char *folder = argc > 4 ? argv[4] : "ckpt";
    long state[2] = {0, 1}; /* step, value */
    char path[4000];
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(path, sizeof path, "%s/state", folder);
    if (rank == 0) {
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%ld %ld", &state[0], &state[1]) == 2)
            printf("rank 0 of %d resumes at step=%ld from %s\n", size, state[0], path);
        if (file) fclose(file);
        else mkdir(folder, 0777);
    }
    MPI_Bcast(state, 2, MPI_LONG, 0, MPI_COMM_WORLD);

    while (state[0] < steps) {
        long mine = (state[1] * (rank + 1)) % 1000003, sum = around(mine, rank, size), all;
        MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (all != sum) {
            fprintf(stderr, "rank %d: the ring gives %ld and MPI_Allreduce %ld\n", rank, sum, all);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        state[0] += 1;
        state[1] = (state[1] * 31 + sum) % 1000003;
        if (rank == 0 && state[0] % 10 == 0) printf("step=%ld value=%ld\n", state[0], state[1]);
        if (rank == 0 && state[0] % every == 0) save(path, state[0], state[1]);
        fflush(stdout);
        usleep((useconds_t)(pause_s * 1e6));
    }
    if (rank == 0) printf("done step=%ld value=%ld processes=%d\n", state[0], state[1], size);
    MPI_Finalize();
    return 0;
}
