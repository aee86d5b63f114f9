/* Processes with open devices create children in all ways. All processes continue to work. */
#define _GNU_SOURCE
#include "user.h"
#include "old.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct user u;

/* in_child runs a function in a child that calls exit(), and waits for the child. */
static pid_t start(void (*run)(void))
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		run();
		exit(0);
	}
	return pid;
}

static void finish(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void nothing(void) {}

static void anew(void)
{
	struct user mine = user_open();
	for (int i = 0; i < 20; i++)
		talk(&mine);
	user_close(&mine);
}

static void leave_open(void)
{
	struct user mine = user_open();
	talk(&mine);
}

static void close_inherited(void)
{
	CHECK(close(u.l.ctx->cmd_fd) == 0 && close(u.l.ctx->async_fd) == 0 && close(u.ch->fd) == 0);
}

static void close_all(void) { closefrom(3); }

static void close_all_then_anew(void)
{
	closefrom(3);
	anew();
}

/* children must not affect the parent's device. */
static void children(void)
{
	static void (*const kind[])(void) = { nothing, anew, leave_open, close_inherited, close_all, close_all_then_anew };
	for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
		pid_t a = start(kind[i]), b = start(kind[i]);
		for (int k = 0; k < 20; k++)
			talk(&u);
		finish(a);
		finish(b);
		talk(&u);
	}
}

/* commands checks that each command gets its own answer, which has the depth of the queue. */
static void commands(void)
{
	for (int i = 0; i < 150; i++) {
		int depth = 1 + (i * 37 + getpid()) % 1000;
		struct ibv_cq *cq = ibv_create_cq(u.l.ctx, depth, NULL, NULL, 0);
		CHECK(cq && cq->cqe >= depth && cq->cqe < 2 * depth + 64);
		CHECK(ibv_destroy_cq(cq) == 0);
	}
}

/* shared: several processes use one context, as with a kernel. */
static void shared(void)
{
	pid_t pid[3];
	for (int i = 0; i < 3; i++)
		pid[i] = start(commands);
	commands();
	for (int i = 0; i < 3; i++)
		finish(pid[i]);
	talk(&u);
}

static void commands_for_ever(void)
{
	for (;;)
		commands();
}

/* killed kills a process during its commands. The parent's commands succeed, or fail if the next
 * answer cannot be assigned to a command. None hangs or gets a wrong answer. */
static void killed(void)
{
	for (int i = 0; i < 20; i++) {
		struct user mine = u = user_open();
		pid_t pid = start(commands_for_ever);
		int status;
		for (int k = 0; k < 20 + i; k++) {
			struct ibv_cq *cq = ibv_create_cq(u.l.ctx, 10, NULL, NULL, 0);
			CHECK(cq && ibv_destroy_cq(cq) == 0);
		}
		CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
		struct ibv_cq *cq = ibv_create_cq(u.l.ctx, 10, NULL, NULL, 0);
		CHECK(cq ? ibv_destroy_cq(cq) == 0 : errno == EIO);
		user_close(&mine);
	}
	u = user_open();
}

/* spawned: children of vfork() use their parent's memory until exec(). */
static void spawned(void)
{
	char *argv[] = { "true", NULL };
	int status;
	pid_t pid = vfork();
	if (pid == 0) {
		dup2(u.ch->fd, 0);
		dup2(0, u.ch->fd + 1);
		dup2(0, u.ch->fd);
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		close_range(3, ~0U, 0);
		execvp(argv[0], argv);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	talk(&u);
	CHECK(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
	talk(&u);
	CHECK(system("exec 3<&- 4<&- 5<&-; true") == 0);
	talk(&u);
	char text[8];
	FILE *f = popen("echo hello", "r");
	CHECK(f && fgets(text, sizeof text, f) && !strcmp(text, "hello\n") && pclose(f) == 0);
	talk(&u);
}

/* as_daemon continues with a device that was opened earlier. The process that opened it is gone,
 * and so are its regions. */
static void as_daemon(void)
{
	int result[2], status;
	char c = 0;
	CHECK(pipe(result) == 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct user mine = user_open();
		talk(&mine);
		CHECK(daemon(1, 1) == 0 && ibv_dereg_mr(mine.l.mr) == 0);
		CHECK((mine.l.mr = ibv_reg_mr(mine.l.pd, mine.l.buf, BUF, IBV_ACCESS_LOCAL_WRITE)) != NULL);
		for (int i = 0; i < 20; i++)
			talk(&mine);
		user_close(&mine);
		anew();
		CHECK(write(result[1], "k", 1) == 1);
		exit(0);
	}
	CHECK(close(result[1]) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(read(result[0], &c, 1) == 1 && c == 'k');
	CHECK(close(result[0]) == 0);
}

/* within moves bytes inside a region. The region belongs to this process even if another one opened
 * the device. */
static void within(struct ibv_mr *mr, char *p, int seed)
{
	struct ibv_sge from = { (uintptr_t)p, 100, mr->lkey }, to = { (uintptr_t)p + 5000, 100, mr->lkey };
	struct ibv_recv_wr rwr = { .sg_list = &to, .num_sge = 1 }, *rbad;
	struct ibv_send_wr swr = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED }, *sbad;
	memset(p, seed, 100);
	memset(p + 5000, 0, 102);
	CHECK(ibv_post_recv(u.qp, &rwr, &rbad) == 0 && ibv_post_send(u.qp, &swr, &sbad) == 0);
	CHECK(reap(u.cq).status == IBV_WC_SUCCESS && reap(u.cq).status == IBV_WC_SUCCESS);
	CHECK(!memcmp(p, p + 5000, 100) && p[5099] == seed && p[5100] == 0);
}

/* on_stack registers memory that cannot be replaced. */
static void on_stack(int seed)
{
	char stack[10000];
	struct ibv_mr *mr = ibv_reg_mr(u.l.pd, stack, sizeof stack, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	within(mr, stack, seed);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void in_child(void)
{
	for (int i = 0; i < 3; i++)
		on_stack(i + 10);
}

/* turns: parent and children alternately register their own memory with one device. The parent's
 * region stays the parent's. */
static void turns(void)
{
	char stack[10000];
	struct ibv_mr *mr = ibv_reg_mr(u.l.pd, stack, sizeof stack, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	for (int i = 0; i < 100; i++) { /* more than the number of descriptors that the daemon keeps */
		finish(start(in_child));
		on_stack(i);
		within(mr, stack, i);
	}
	CHECK(ibv_dereg_mr(mr) == 0);
	talk(&u);
}

static atomic_bool stop;
static atomic_int running;

static void *hammer(void *arg)
{
	struct user mine = user_open();
	atomic_fetch_add(&running, 1);
	while (!atomic_load(&stop)) {
		struct ibv_cq *cq = ibv_create_cq(*(struct ibv_context **)arg, 10, NULL, NULL, 0);
		CHECK(cq && ibv_destroy_cq(cq) == 0);
		talk(&mine);
	}
	user_close(&mine);
	return NULL;
}

/* threads calls fork() while other threads are active. They do not list devices: libibverbs would
 * hold its own lock, and the child would wait forever. */
static void threads(void)
{
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, hammer, &u.l.ctx) == 0);
	while (atomic_load(&running) < 2)
		usleep(1000);
	for (int i = 0; i < 30; i++)
		finish(start(i % 3 ? anew : commands));
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	talk(&u);
}

int main(void)
{
	static const struct { const char *name; void (*run)(void); } part[] = {
		{ "children", children }, { "shared", shared }, { "spawned", spawned }, { "as_daemon", as_daemon },
		{ "turns", turns }, { "threads", threads }, { "killed", killed },
	};
	u = user_open();
	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		fprintf(stderr, "%s\n", part[i].name);
		part[i].run();
	}
	user_close(&u);
	return 0;
}
