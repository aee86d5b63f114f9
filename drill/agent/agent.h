/*
 * The agent of rocedrill drives verbs on the device under test. It needs libibverbs only; rocedrill-agent-cm also has cm.c,
 * which needs librdmacm. Commands come as lines of a number, a verb and key=value arguments; the answer to each is a line of
 * the same number and "ok key=value ..." or "error text", so that the tester can drop the answer to a command that it has
 * given up. Completions and asynchronous events are reported as they happen, as lines that begin with "cqe" and "event".
 */
#ifndef AGENT_H
#define AGENT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* VERSION counts changes of the commands. */
enum { OBJECTS = 128, SGES = 8, GROUPS = 8, VERSION = 5 };

/* Objects of the kinds from CQ on may have reports. */
enum kind { FREE, PD, MR, MW, CQ, SRQ, AH, QP, LISTENER, CONN };

/* object is an object of the device under the name that the script gives it. */
struct object {
	enum kind kind;
	char name[40];
	union {
		struct ibv_pd *pd;
		struct ibv_mr *mr;
		struct ibv_mw *mw;
		struct ibv_cq *cq;
		struct ibv_srq *srq;
		struct ibv_ah *ah;
		struct ibv_qp *qp;
		struct rdma_cm_id *id;
	};
	struct rdma_cm_id *newest; /* request of a listener, or the connection itself */
	uint8_t *data; /* memory of an MR */
	uint64_t base; /* address of its first byte in work requests */
	size_t size;
	union ibv_gid groups[GROUPS]; /* multicast groups that a QP is attached to */
	int attached;
	bool recv; /* a CQ that receives complete to */
};

/* agent.c */
extern struct object objects[OBJECTS];
extern struct ibv_context *device;
extern uint8_t port;
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *value(const char *key);
const char *text(const char *key, const char *otherwise);
uint64_t number(const char *key, uint64_t otherwise);
bool has(const char *key);
struct object *find(enum kind kind, const char *name);
/* UNNAMED is the name of objects that no script can name. */
#define UNNAMED "\1"
struct object *place(enum kind kind, const char *name);
struct object *create(enum kind kind);
int find_sges(struct ibv_sge *list);
uint8_t *part(const char *value, struct object **mr, size_t *len);
int access_flags(int otherwise);
size_t unhex(const char *key, uint8_t *to, size_t room);
struct ibv_pd *domain(void);

/* listen.c */
int listen_for(const char *where, const char *token);

/* objects.c: create, change and destroy objects */
int cmd_open(void);
int cmd_pd(void);
int cmd_mr(void);
int cmd_mw(void);
int cmd_cq(void);
int cmd_arm(void);
int cmd_srq(void);
int cmd_ah(void);
int cmd_qp(void);
int cmd_modify(void);
int cmd_limit(void);
int cmd_resize(void);
int cmd_query(void);
int cmd_destroy(void);
int cmd_close(void);

/* work.c: post work requests */
int cmd_recv(void);
int cmd_post(void);
int cmd_awrite(void);
int cmd_bind(void);
int cmd_invalidate(void);
int cmd_set(void);
int cmd_check(void);
int cmd_counter(void);
int cmd_attach(void);
int cmd_detach(void);
int detach_all(struct object *qp);
int group(union ibv_gid *gid);
void count_from_now(void);
extern const char *verb; /* of the command that runs */

/* cm.c: the connection manager. These are NULL in the agent without it. */
#define OPTIONAL __attribute__((weak))
bool cm_open(void) OPTIONAL;
void cm_report(void) OPTIONAL;
int cm_destroy(struct object *o) OPTIONAL;
int cm_query(void) OPTIONAL;
int cmd_listen(void) OPTIONAL;
int cmd_connect(void) OPTIONAL;
int cmd_accept(void) OPTIONAL;
int cmd_reject(void) OPTIONAL;
int cmd_establish(void) OPTIONAL;
int cmd_leave(void) OPTIONAL;

/* report.c: completions and events */
extern struct ibv_comp_channel *notifications; /* of completion queues that scripts name */
void reported(void); /* agent.c: writes one report */
void report(void);
const char *status_name(int status);
const char *state_name(int state);
int state_number(const char *name);

#endif
