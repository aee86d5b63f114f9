/* Which process this is: fork() and vfork() change it under the library's feet. */
#include "process.h"

#include <sys/syscall.h>
#include <unistd.h>

static pid_t self;

static void in_child(void)
{
	self = syscall(SYS_getpid);
}

/* The handlers of fork() that were registered first run first in the child. Its memory
 * is to be its own before others write to it: to unlock what may lie in a page that the
 * parent shares would unlock it there. */
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
