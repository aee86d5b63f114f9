/* Threads that wait for events are cancelled, interrupted by signals, and lose their device when other
 * threads close it. */
#define _GNU_SOURCE
#include "user.h"
#include "self.h"

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

static struct user u;
static struct rdma_event_channel *cm;

static void *wait_completion(void *arg)
{
	struct ibv_cq *cq;
	void *context;
	return (void *)(intptr_t)ibv_get_cq_event(arg ? arg : u.ch, &cq, &context);
}

/* wait_async ignores events of the port: the daemon at the other end of the link may start late, and
 * this one then reports PORT_ERR and PORT_ACTIVE. */
static void *wait_async(void *arg)
{
	struct ibv_async_event e;
	int r;
	while ((r = ibv_get_async_event(arg ? arg : u.l.ctx, &e)) == 0) {
		ibv_ack_async_event(&e);
		if (e.event_type != IBV_EVENT_PORT_ERR && e.event_type != IBV_EVENT_PORT_ACTIVE)
			break;
	}
	return (void *)(intptr_t)r;
}

static void *wait_cm(void *arg)
{
	struct rdma_cm_event *e;
	return (void *)(intptr_t)rdma_get_cm_event(arg ? arg : cm, &e);
}

typedef void *wait_fn(void *arg);
static wait_fn *const waits[] = { wait_completion, wait_async, wait_cm };
enum { WAITS = sizeof waits / sizeof *waits };

/* wait_asleep waits until a thread sleeps in the kernel. */
static void wait_asleep(pid_t tid)
{
	char path[64], text[512];
	for (;;) {
		snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
		FILE *f = fopen(path, "r");
		CHECK(f && fgets(text, sizeof text, f) && fclose(f) == 0);
		if (strstr(text, ") S "))
			return;
		usleep(100);
	}
}

/* A thread that waits for an event. */
struct event_thread {
	pthread_t thread;
	wait_fn *wait;
	void *arg;
	_Atomic pid_t tid;
	int err;
};

static void *begin(void *arg)
{
	struct event_thread *w = arg;
	atomic_store(&w->tid, gettid());
	void *r = w->wait(w->arg);
	w->err = errno;
	return r;
}

static void start(struct event_thread *w, wait_fn *wait, void *arg)
{
	*w = (struct event_thread){ .wait = wait, .arg = arg };
	CHECK(pthread_create(&w->thread, NULL, begin, w) == 0);
	while (!atomic_load(&w->tid))
		usleep(100);
	wait_asleep(w->tid);
}

/* cancelled threads leave no locks or references: their objects still work and can be destroyed. */
static void cancelled(void)
{
	for (int i = 0; i < 30; i++) {
		struct event_thread w;
		void *result;
		start(&w, waits[i % WAITS], NULL);
		CHECK(pthread_cancel(w.thread) == 0 && pthread_join(w.thread, &result) == 0);
		CHECK(result == PTHREAD_CANCELED);
		talk(&u);
	}
}

/* hurried cancels threads at any time. Each command is either answered or not, never in part. */
static void *events_of_cm(void *arg)
{
	struct rdma_cm_event *e;
	for (;;)
		if (rdma_get_cm_event(arg, &e) == 0)
			rdma_ack_cm_event(e);
	return NULL;
}

static void hurried(void)
{
	struct sockaddr_in self = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001) };
	for (int i = 0; i < 100; i++) {
		struct rdma_event_channel *ch = rdma_create_event_channel();
		struct rdma_cm_id *id;
		pthread_t t;
		void *result;
		CHECK(ch && rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
		CHECK(pthread_create(&t, NULL, events_of_cm, ch) == 0);
		CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&self, 2000) == 0);
		for (volatile int spin = 0; spin < i * 2000; spin++)
			;
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED);
		/* A thread that is cancelled while librdmacm has the event to itself keeps the
		 * identifier busy; the channel of it goes all the same. */
		rdma_destroy_event_channel(ch);
	}
}

static void handler(int number) { (void)number; }

/* interrupted: with SA_RESTART the call continues, without it the call returns EINTR. */
static void interrupted(void)
{
	for (int i = 0; i < 2 * WAITS; i++) {
		int restart = i < WAITS;
		struct sigaction a = { .sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0 };
		struct event_thread w;
		void *result;
		CHECK(sigaction(SIGUSR1, &a, NULL) == 0);
		start(&w, waits[i % WAITS], NULL);
		for (int k = 0; restart && k < 20; k++) {
			CHECK(pthread_kill(w.thread, SIGUSR1) == 0);
			wait_asleep(w.tid);
		}
		if (restart)
			pthread_cancel(w.thread);
		else
			pthread_kill(w.thread, SIGUSR1);
		CHECK(pthread_join(w.thread, &result) == 0);
		CHECK(restart ? result == PTHREAD_CANCELED : result != NULL && w.err == EINTR);
	}
}

/* left closes the device while threads wait. They return an error and do no harm. */
static void left(void)
{
	for (int i = 0; i < 20; i++) {
		struct user mine = user_open();
		struct event_thread a, b;
		void *result;
		start(&a, wait_completion, mine.ch);
		start(&b, wait_async, mine.l.ctx);
		CHECK(close(mine.ch->fd) == 0 && close(mine.l.ctx->async_fd) == 0 && close(mine.l.ctx->cmd_fd) == 0);
		/* The daemon closes its sockets, which wakes the threads. */
		CHECK(pthread_join(a.thread, &result) == 0 && result != NULL && a.err == EBADF);
		CHECK(pthread_join(b.thread, &result) == 0 && result != NULL && b.err == EBADF);
	}
}

static atomic_bool stop;

static void *share_context(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		struct ibv_comp_channel *ch = ibv_create_comp_channel(u.l.ctx);
		struct ibv_cq *cq = ibv_create_cq(u.l.ctx, 10, NULL, ch, 0);
		CHECK(ch && cq);
		struct ibv_qp *qp = loop_qp(&u.l, cq, cq);
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		post_recv(&u.l, qp, 1);
		CHECK(post_send(&u.l, qp, 2) == 0);
		struct ibv_cq *got;
		void *context;
		CHECK(ibv_get_cq_event(ch, &got, &context) == 0 && got == cq);
		ibv_ack_cq_events(cq, 1);
		char *p = malloc(20000);
		struct ibv_mr *mr = ibv_reg_mr(u.l.pd, p, 20000, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr && ibv_dereg_mr(mr) == 0);
		free(p);
		CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(ch) == 0);
	}
	return NULL;
}

static void *own_context(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		struct user mine = user_open();
		talk(&mine);
		user_close(&mine);
	}
	return NULL;
}

/* many_threads: many threads use all functions at the same time. */
static void many_threads(void)
{
	pthread_t t[6];
	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&t[i], NULL, i % 2 ? share_context : own_context, NULL) == 0);
	for (int i = 0; i < 200; i++)
		talk(&u);
	atomic_store(&stop, true);
	for (int i = 0; i < 6; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

/* wait_port waits until the port has the state, or if !equal another one. */
static void wait_port(enum ibv_port_state state, bool equal)
{
	struct ibv_port_attr a;
	do {
		usleep(1000);
		CHECK(ibv_query_port(u.l.ctx, 1, &a) == 0);
	} while ((a.state == state) != equal);
}

/* With an argument, the program waits until the port has gone down and up again. */
int main(int argc, char **argv)
{
	(void)argv;
	static const struct { const char *name; void (*run)(void); } part[] = {
		{ "cancelled", cancelled }, { "interrupted", interrupted }, { "hurried", hurried }, { "left", left },
		{ "many_threads", many_threads },
	};
	u = user_open();
	if (argc > 1) {
		CHECK(puts("ready") >= 0 && fflush(stdout) == 0);
		wait_port(IBV_PORT_ACTIVE, false);
		CHECK(puts("down") >= 0 && fflush(stdout) == 0);
		wait_port(IBV_PORT_ACTIVE, true);
	}
	CHECK((cm = rdma_create_event_channel()) != NULL);
	hurried(); /* librdmacm opens its devices once */
	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		int fds = open_fds("self");
		fprintf(stderr, "%s\n", part[i].name);
		part[i].run();
		CHECK(open_fds("self") == fds);
	}
	rdma_destroy_event_channel(cm);
	user_close(&u);
	return 0;
}
