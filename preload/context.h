/*
 * Verbs contexts.
 *
 *   context.c   a context, and commands of the library itself
 *   doorbell.c  doorbells in shared memory
 *   direct.c    commands through shared memory
 *   report.c    reports of the traffic
 */
#ifndef ROCED_CONTEXT_H
#define ROCED_CONTEXT_H

#include "objects.h"

/* Handles of queue pairs are smaller (docs/reference/control-protocol.md). */
enum { DOORBELL_QPS = 16384 };

/* Extension commands (docs/reference/control-protocol.md). */
enum { EXT_HELLO = 0xc0, EXT_DOORBELL, EXT_MAP_MEMORY, EXT_UNMAP_MEMORY, EXT_REFRESH_SYSFS = 0xc7, EXT_PASS_MEMORY, EXT_REPORT = 0xca };

/* A verbs context: one connection, private to the library. The program's descriptor is
 * that of the memfd with the rings, so mmap() of a ring needs no interposition. */
struct context {
	struct file file;
	atomic_int holders; /* references: the file and the channels */
	int fd;             /* the connection */
	int rings;          /* a private descriptor of the memfd */
	pid_t opener;       /* the process that connected */
	uint64_t mapped_ino; /* the memfd that the daemon knows by the number below; mr_lock guards both */
	uint32_t mapped_number;
	pid_t passer;    /* the process that owns the memory with the handle below; call guards both */
	uint32_t memory;
	_Atomic pid_t watcher; /* the process whose thread watches the connection */
	atomic_bool dead;
	struct context *next; /* in the list of death.c */
	uint8_t *doorbell;    /* shared memory, NULL if there is none */
	int doorbell_fd;
	atomic_bool ready[DOORBELL_QPS]; /* by handle: the queue pair may send */

	struct call_lock *call; /* one command at a time; guards answer */
	struct answer answer;

	pthread_mutex_t lock; /* guards objects and channels */
	struct objects objects;
	struct channel *channels; /* events.c */
};

/* ---- context.c ---- */

/* context_of returns the context of a descriptor, NULL if it has none. */
struct context *context_of(int fd);
/* context_put drops a reference (holders). */
void context_put(struct context *c);
/* context_send sends a command and fills c->answer; 0 or -errno. The caller holds c->call. */
int context_send(struct context *c, const void *cmd, size_t n, const int *fds, size_t nfds);
/* context_call_locked sends a command of the library itself and copies the response, unless
 * resp is NULL; 0 or -errno. The caller holds c->call. */
int context_call_locked(struct context *c, const void *cmd, size_t n, const int *fds, size_t nfds, void *resp,
			size_t resp_len);
/* context_call takes c->call. It passes send_fd unless that is negative. */
int context_call(struct context *c, const void *cmd, size_t n, int send_fd, void *resp, size_t resp_len);
/* context_start_doorbells sets up the doorbells of a new context. Without them each POST_SEND is
 * a command. The caller holds c->call. */
void context_start_doorbells(struct context *c);

/* ---- doorbell.c ---- */

/* The daemon's answer to EXT_DOORBELL. */
struct doorbell {
	uint64_t offset; /* in the context's memfd */
	uint32_t size, reserved;
};

/* doorbell_map maps the doorbells that an answer describes. */
void doorbell_map(struct context *c, const struct answer *a);
void doorbell_free(struct context *c);
/* doorbell_wake wakes the daemon if it sleeps. */
void doorbell_wake(struct context *c);
/* doorbell_send reports a send queue with new work. doorbell_armed reports a completion
 * queue that was armed while it held completions. */
void doorbell_send(struct context *c, uint32_t qp);
void doorbell_armed(struct context *c, uint32_t cq);

/* ---- direct.c ---- */

/* direct_call executes a command through shared memory and fills c->answer. It returns
 * false if the command must go through the socket, also after a failure. The caller holds
 * c->call. */
bool direct_call(struct context *c, const void *cmd, size_t n);

/* ---- report.c ---- */

/* report_start makes the daemon report the traffic of a new context if ROCED_REPORT requests
 * it. */
void report_start(struct context *c);

#endif
