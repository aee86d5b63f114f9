package model

import (
	"fmt"
	"strings"
)

// Rule is a rule that the statements of sequences check.
type Rule struct {
	ID   string // comment of the statements that check it
	Spec string // section, as drill/suite/SPEC.md lists it
	Text string
	// Choice is the freedom that the rule leaves to the device, empty for none. The prediction permits all of it.
	Choice string
	// Policy says that no public source demands the rule: a device may do otherwise.
	Policy bool
}

// Rules lists all rules.
var Rules = []Rule{
	{"ack", "IBTA 9.7.5.1.2", "A request for an acknowledgement is answered with its PSN and the number of messages executed.",
		"coalescing; acknowledgements that no request asks for; message credits", false},
	{"read", "IBTA 9.7.5.1", "A READ is answered by its data in packets of the path MTU with consecutive PSNs.", "the MSN of the first packet", false},
	{"atomic", "IBTA 9.4", "An atomic operation returns the original value and changes the memory once.", "", false},
	{"receive", "IBTA 9.7.5.1", "A SEND or a WRITE with immediate data completes the oldest receive, with length and immediate data.", "", false},
	{"memory", "IBTA 9.4", "Messages change the memory that they name, and nothing beside it.", "", false},
	{"drop.icrc", "IBTA A17", "A packet with a wrong ICRC is dropped silently.", "", false},
	{"drop.pkey", "IBTA C9-43", "A packet of another partition is dropped silently.", "", false},
	{"drop.header", "Linux rxe_recv.c", "A packet of another version, queue pair, service or peer is dropped silently.", "", false},
	{"gap", "IBTA 9.7.5.1", "A request ahead of the expected PSN draws one NAK with the expected PSN and is not executed.", "", false},
	{"dup.write", "IBTA 9.7.5.1", "A duplicate SEND or WRITE is acknowledged again and not executed again.",
		"the PSN of the acknowledgement, up to the newest; any answer inside a gap, or if none is asked for", false},
	{"dup.read", "IBTA 9.7.5.1", "A duplicate READ is answered again from its PSN on.", "old or new data, if the memory has changed", false},
	{"dup.part", "IBTA 9.7.5.1", "A duplicate READ may ask for some packets inside the original one.", "", true},
	{"dup.subset", "IBTA 9.7.5.1", "A duplicate READ for a part of the original one is answered by that part and no more.", "no answer", false},
	{"dup.atomic", "IBTA 9.7.5.1", "A duplicate atomic returns the saved result and is not executed again.", "", false},
	{"rnr", "IBTA 9.7.5", "A message without a receive draws an RNR NAK and is executed when it is repeated after a post.",
		"a NAK for packets behind it", false},
	{"opcode", "IBTA 9.7.4.1", "A packet that does not continue its message draws a NAK for an invalid request.", "", false},
	{"length", "IBTA 9.7.4.1", "A packet of a wrong length draws a NAK for an invalid request.", "its data", false},
	{"access", "IBTA 9.7.4.1.5", "A wrong key, range or right draws a NAK for a remote access error, a misaligned atomic one for an invalid request. No data are written or returned.",
		"precedence, if a packet has two faults or the queue pair lacks the right", false},
	{"operation", "IBTA 9.7.5", "A receive whose memory cannot be written draws a NAK for a remote operational error.", "", false},
	{"broken", "IBTA 9.9", "An error breaks the queue pair: its requests are flushed, and it answers nothing.", "events", false},
	{"reset", "ibv_modify_qp(3)", "A queue pair that was reset starts with new PSNs and without a trace of the old connection.", "", false},
	{"request", "IBTA Table 38", "Requests have consecutive PSNs, packets of the path MTU, and the fields of their work request.",
		"the packets that request an acknowledgement", false},
	{"complete", "IBTA 9.7.5.1.2", "An acknowledgement completes the requests up to its PSN, in order, and no other.", "", false},
	{"response", "IBTA 9.4.4", "The data of READ and atomic responses are placed, and complete their requests.", "", false},
	{"response.wrong", "IBTA 9.9", "A response of a wrong length or opcode does not complete its request with success.", "the status; a retry before", false},
	{"response.bare", "Shanley 17", "An acknowledgement alone completes no READ or atomic.", "the status; a retry before", false},
	{"read.rest", "Shanley 17", "After a missing response the requester asks for the rest of its READ, or for all of it.",
		"the rest or all; whether later requests follow at once", false},
	{"implied", "Shanley 17", "An acknowledgement, a NAK or a response behind a missing READ or atomic response completes neither; the requester asks again.",
		"whether later requests follow at once", false},
	{"resources", "IBTA 9.4.4", "At most max_rd_atomic READs and atomics are outstanding; the next one leaves after a response.", "", false},
	{"fence", "IBTA 10.8.3.3", "A request with a fence waits for the READs and atomics before it.", "", false},
	{"resources.none", "IBTA 9.7.4.1", "A queue pair without responder resources answers a READ or an atomic with a NAK for an invalid request.", "", false},
	{"beside", "IBTA 9.7.5", "A second queue pair with shared queues executes and completes its messages, whatever happens to the first.", "", false},
	{"refused", "ibv_modify_qp(3)", "A queue pair refuses changes of state and attributes that its state does not permit, and goes on.", "", false},
	{"window", "IBTA C10-75", "The key of a memory window gives access to its part of the region, until it is invalidated.", "", false},
	{"invalidate", "IBTA 9.9.6.3", "A SEND that invalidates a key which does not exist breaks the queue pair.", "a NAK", false},
	{"ghost", "Shanley 17", "A response for a PSN that is not outstanding has no effect; nor has a CNP.", "the rate", false},
	{"cnp", "IBTA A17.9.3", "A request that the network has marked draws a CNP to its sender, and is executed.", "", false},
	{"nak", "IBTA 9.7.5.1.2", "A NAK for a sequence error completes earlier requests; the requester goes back to its PSN.", "", false},
	{"rnr.wait", "IBTA 9.7.5", "After an RNR NAK the requester waits at least for its timer and sends again from its PSN.", "longer waits", false},
	{"rnr.retry", "IBTA 9.9", "An RNR NAK more than rnr_retry permits ends the request. A completion restores the count; 7 is endless.",
		"whether progress inside a message restores it", false},
	{"timeout", "IBTA 9.7.6.1.3", "Without a response the requester sends again from the oldest PSN after T to 4 T.",
		"the time; which of the later packets follow before an acknowledgement", false},
	{"timeout.retry", "IBTA 9.9", "Without a response the requester sends a request again as often as retry_cnt says, and then ends it.",
		"more retries; their times", false},
	{"local", "IBTA 10.6.3.3", "A work request whose memory its queue pair may not access ends with a local protection error.", "a READ request before", false},
	{"flush", "IBTA 9.9", "Work requests of a queue pair in error complete as flushed, also unsignaled ones.", "", false},
	{"flush.receive", "IBTA 9.9", "Receives that are posted to a queue pair in error complete as flushed.", "", false},
	{"drain", "ibv_modify_qp(3)", "In SQD a queue pair finishes its requests, begins none, and answers the peer; in RTS it resumes.", "", false},
	{"right", "IBTA 9.7.4.1", "A queue pair that does not permit an operation answers it with a NAK, and neither writes nor returns data.", "the code of the NAK", false},
	{"state", "ibv_modify_qp(3)", "A queue pair in RESET or INIT drops packets silently.", "", false},
	{"query", "ibv_modify_qp(3)", "A query returns the attributes that the queue pair was given.", "", false},
	{"last", "IBTA 10.2.9.5", "A broken queue pair with a shared receive queue reports that it takes no further receive.", "", false},
	{"limit", "IBTA 10.2.9.5", "The limit event of a shared receive queue comes with the message that leaves fewer receives than the limit.", "", false},
	{"notify", "ibv_req_notify_cq(3)", "An armed completion queue notifies once: of the next completion, or of the next solicited one.", "", false},
	{"tune", "ibv_modify_qp(3)", "A drained queue pair in SQD takes new retries, timeouts and depths of READs.", "", false},
	{"stop", "ibv_modify_qp(3)", "A work request that UC or UD cannot execute stops the send queue only; RTS starts it again, with the next PSN.",
		"whether the request has used a PSN", false},
	{"uc.lost", "Shanley 18", "A UC message with a lost packet or without a receive is dropped, and the next one is taken, whatever its PSN is.", "the data of the packets before", false},
	{"uc.access", "Shanley 18", "A UC WRITE with a wrong key is dropped and writes nothing.", "", false},
	{"uc.length", "IBTA 9.7.4.1", "A UC message with a packet of a wrong length or opcode is dropped, and the next one is taken.", "its data", false},
	{"drop.service", "Shanley 20", "A UC or UD queue pair drops packets of another service, partition or Q_Key, or with a fault.", "", false},
	{"ud.receive", "IBTA A17", "A datagram completes a receive, with the sender's queue pair, behind 40 bytes that end with its addresses.", "the other bytes before", false},
	{"ud.long", "rdma-unit-test ud_test.cc", "A datagram that is longer than its receive draws no answer and writes nothing beyond it.", "the completion", false},
	{"ud.request", "Shanley 20", "A datagram has the Q_Key of its request, or that of the queue pair, and the number of its queue pair.", "", false},
	{"fatal", "IBTA 9.9", "A NAK for another error ends its request with its status and flushes later ones.", "", false},
}

// rule returns the rule of an ID, nil if the engine has it.
func rule(id string) *Rule {
	for i := range Rules {
		if Rules[i].ID == id {
			return &Rules[i]
		}
	}
	return nil
}

// Citing returns the IDs of the rules of a section.
func Citing(spec string) []string {
	list := []string{}
	for _, r := range Rules {
		if r.Spec == spec {
			list = append(list, r.ID)
		}
	}
	return list
}

// WriteReference writes docs/reference/drill-model.md: the rules, and the choices that they leave.
func WriteReference(b *strings.Builder) {
	b.WriteString("# Rules of rocedrill model\n\nFor users of [`rocedrill model`](drill.md#random-sequences): the rules that random sequences check. " +
		"Written from the code by `go test ./drill/model -run TestReference -update`.\n\n| rule | section | meaning | choices that it permits |\n|---|---|---|---|\n")
	for _, r := range Rules {
		policy := map[bool]string{true: ", policy"}[r.Policy]
		fmt.Fprintf(b, "| `%s` | %s%s | %s | %s |\n", r.ID, r.Spec, policy, r.Text, r.Choice)
	}
}
