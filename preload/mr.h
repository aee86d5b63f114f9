/* Memory regions on any memory of the program. */
#ifndef ROCED_MR_H
#define ROCED_MR_H

#include <stdint.h>
#include <sys/types.h>

/* mr_prepare gets a range ready to be registered on a connection. */
int mr_prepare(int cmd_fd, uint64_t start, uint64_t length);
/* mr_registered and mr_released tell what the program has registered. */
void mr_registered(int cmd_fd, uint32_t handle, uint64_t start, uint64_t length);
void mr_released(int cmd_fd, uint32_t handle);
/* mr_context_closed forgets a connection. */
void mr_context_closed(int cmd_fd);
/* mr_mmap is mmap() of memory that is not a ring. */
void *mr_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);

#endif
