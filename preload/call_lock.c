/* The lock of a connection. Processes share it. */
#include "connection.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct call_lock *call_lock_new(void)
{
	struct call_lock *l = (void *)syscall(SYS_mmap, NULL, sizeof *l, PROT_READ | PROT_WRITE,
					      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (l == MAP_FAILED)
		return NULL;
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&l->mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return l;
}

void call_lock_free(struct call_lock *l)
{
	syscall(SYS_munmap, l, sizeof *l);
}

void call_lock(struct call_lock *l, int fd)
{
	if (pthread_mutex_lock(&l->mutex) != EOWNERDEAD)
		return;
	shutdown(fd, SHUT_RDWR);
	pthread_mutex_consistent(&l->mutex);
}

void call_unlock(struct call_lock *l)
{
	pthread_mutex_unlock(&l->mutex);
}
