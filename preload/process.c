/* The identity of the process, which fork() and vfork() change. */
#include "process.h"

#include <sys/syscall.h>
#include <unistd.h>

static pid_t self;

static void in_child(void)
{
	self = syscall(SYS_getpid);
}

/* In the child, handlers run in the order of registration. This one must be first, then
 * that of mr_fork.c, which unshares the child's memory: otherwise unlocking a mutex in a
 * shared page would unlock the parent's mutex. */
__attribute__((constructor(101))) static void begin(void)
{
	self = syscall(SYS_getpid);
	pthread_atfork(NULL, NULL, in_child);
}

pid_t process_id(void)
{
	return self;
}

bool process_owns_memory(void)
{
	return syscall(SYS_getpid) == self;
}
