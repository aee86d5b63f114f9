package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/daemon/api"
)

func (a *app) link() *cobra.Command {
	run := func(c *cobra.Command, _ []string) error {
		var links []api.Link
		if err := a.client().Get(c.Context(), &links, "links"); err != nil {
			return err
		}
		return a.showLinks(links)
	}
	cmd := &cobra.Command{Use: "link", Short: "Show NICs and the state of their links", Args: about.NoArgs, RunE: run,
		Example: "  rocectl link show\n  rocectl link --json"}
	cmd.AddCommand(&cobra.Command{Use: "show", Short: "Show NICs and the state of their links", Args: about.Words(0, 0), RunE: run,
		Example: "  rocectl link show"})
	return cmd
}

// showLinks prints NICs.
func (a *app) showLinks(links []api.Link) error {
	return a.show(links, func(w io.Writer) {
		for i, l := range links {
			printLink(w, i, &l)
		}
	})
}

func printLink(w io.Writer, i int, l *api.Link) {
	fmt.Fprintf(w, "%d: %s/1: state %s mac %s mtu %d active_mtu %d port %s", i, l.Name, l.State, l.MAC, l.MTU, l.ActiveMTU, l.Port)
	if l.Device != "" {
		fmt.Fprintf(w, " device %s", l.Device)
	}
	if l.Switch != "" {
		fmt.Fprintf(w, " switch %s", l.Switch)
	}
	if l.Shard != "" {
		fmt.Fprintf(w, " shard %s", l.Shard)
	}
	if l.Mode != "" {
		fmt.Fprintf(w, " mode %q", l.Mode)
	}
	if l.Overruns > 0 {
		fmt.Fprintf(w, " overruns %d", l.Overruns)
	}
	if l.Segments > 0 {
		fmt.Fprintf(w, " offload %d", l.Segments)
	}
	fmt.Fprintf(w, " poll %s clients %d", l.Poll, l.Clients)
	if l.Faults > 0 {
		fmt.Fprintf(w, " faults %d", l.Faults)
	}
	if l.Reason != "" {
		fmt.Fprintf(w, " reason %q", l.Reason)
	}
	fmt.Fprintln(w)
	if c := l.Congestion; c != nil {
		fmt.Fprintf(w, "    congestion %s", c.Algorithm)
		for _, name := range slices.Sorted(maps.Keys(c.Params)) {
			fmt.Fprintf(w, " %s %v", name, c.Params[name])
		}
		fmt.Fprintln(w)
	}
	for _, o := range l.Losses {
		fmt.Fprintf(w, "    not sent %d %s reason %q\n", o.Frames, o.Counter, o.Reason)
	}
	for i, p := range l.Planes {
		fmt.Fprintf(w, "    plane %d %s state %s sent_bytes %d received_bytes %d", i, p.Device, p.State, p.Sent, p.Received)
		if p.Reason != "" {
			fmt.Fprintf(w, " reason %q", p.Reason)
		}
		fmt.Fprintln(w)
	}
	for i, g := range l.GIDs {
		if g == "::" {
			continue // the address at this index was removed
		}
		fmt.Fprintf(w, "    gid %d %s", i, g)
		if i < len(l.VLANs) && l.VLANs[i] != 0 {
			fmt.Fprintf(w, " vlan %d", l.VLANs[i])
		}
		fmt.Fprintln(w)
	}
	for _, d := range l.Devices {
		fmt.Fprintf(w, "    verbs device %s profile %s socket %s\n", d.Name, d.Profile, d.Socket)
	}
}

var kinds = []string{"qp", "mr", "cq", "pd", "srq", "ah", "cm_id"}

func (a *app) res() *cobra.Command {
	cmd := &cobra.Command{Use: "res", Short: "Count or list objects of NICs", Args: about.NoArgs, RunE: help,
		Example: "  rocectl res show\n  rocectl res show qp --json"}
	cmd.AddCommand(&cobra.Command{
		Use: "show [qp|mr|cq|pd|srq|ah|cm_id|user]", Short: "List objects or users; without a kind, count objects",
		Args: about.Words(0, 1), ValidArgs: append(kinds, users),
		Example: "  rocectl res show qp\n  rocectl res show user",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.countObjects(c.Context())
			}
			if args[0] == users {
				return a.listUsers(c.Context())
			}
			if !slices.Contains(kinds, args[0]) {
				return about.Usage(fmt.Errorf("no objects of kind %q; there are %s, %s", args[0], strings.Join(kinds, ", "), users))
			}
			return a.listObjects(c.Context(), args[0])
		},
	})
	return cmd
}

// users is the name of the per-user accounts in res show.
const users = "user"

// listUsers prints the resource usage of each user: one line for each NIC, and one line for daemon-wide resources.
func (a *app) listUsers(ctx context.Context) error {
	var res []api.Resource
	if err := a.client().Get(ctx, &res, "res", users); err != nil {
		return err
	}
	return a.show(res, func(w io.Writer) {
		for _, r := range res {
			where := "daemon"
			if r.NIC != "" {
				where = "link " + r.NIC + "/1"
			}
			fmt.Fprintf(w, "%s uid %d", where, r.UID)
			for _, kind := range slices.Sorted(maps.Keys(r.User.Used)) {
				fmt.Fprintf(w, " %s %d", kind, r.User.Used[kind])
				if may := r.User.May[kind]; may > 0 {
					fmt.Fprintf(w, "/%d", may)
				}
			}
			fmt.Fprintln(w)
		}
	})
}

func (a *app) listObjects(ctx context.Context, kind string) error {
	var res []api.Resource
	if err := a.client().Get(ctx, &res, "res", kind); err != nil {
		return err
	}
	return a.show(res, func(w io.Writer) {
		for i := range res {
			fmt.Fprintf(w, "link %s/1 %s pid %d uid %d\n", res[i].NIC, describe(&res[i]), res[i].PID, res[i].UID)
		}
	})
}

func describe(r *api.Resource) string {
	switch {
	case r.QP != nil:
		q := r.QP
		s := fmt.Sprintf("lqpn %s type %s state %s pdn %d scqn %d rcqn %d", bth.QPN(q.Num).Text(), q.Type, q.State, q.PD, q.SendCQ, q.RecvCQ)
		if q.Peer != "" {
			s += fmt.Sprintf(" rqpn %s peer %s path-mtu %d", bth.QPN(q.Dest).Text(), q.Peer, q.PathMTU)
		}
		if q.Error != "" {
			s += fmt.Sprintf(" error %q", q.Error)
		}
		s += fmt.Sprintf(" sq-psn %d rq-psn %d", q.SQPSN, q.RQPSN)
		if len(q.Groups) > 0 {
			s += " groups " + strings.Join(q.Groups, ",")
		}
		if q.Window > 0 {
			s += fmt.Sprintf(" cwnd %d", q.Window)
		}
		if q.Rate > 0 {
			s += fmt.Sprintf(" rate %.1fMb/s", float64(q.Rate)/1e6)
		}
		return s
	case r.MR != nil:
		return fmt.Sprintf("mrn %d mrlen %d access %#x pdn %d", r.MR.ID, r.MR.Length, r.MR.Access, r.MR.PD)
	case r.CQ != nil:
		return fmt.Sprintf("cqn %d cqe %d users %d", r.CQ.ID, r.CQ.CQE, r.CQ.Users)
	case r.PD != nil:
		return fmt.Sprintf("pdn %d users %d", r.PD.ID, r.PD.Users)
	case r.SRQ != nil:
		return fmt.Sprintf("srqn %d pdn %d max_wr %d limit %d posted %d", r.SRQ.ID, r.SRQ.PD, r.SRQ.MaxWR, r.SRQ.Limit, r.SRQ.Posted)
	case r.AH != nil:
		return fmt.Sprintf("ahn %d pdn %d peer %s", r.AH.Handle, r.AH.PD, r.AH.Peer)
	case r.CMID != nil:
		return describeCMID(r.CMID)
	}
	return "?"
}

func describeCMID(c *api.CMID) string {
	s := fmt.Sprintf("cm-idn %d state %s ps %s", c.ID, c.State, c.PS)
	if c.QPN != 0 {
		s += fmt.Sprintf(" lqpn %s", bth.QPN(c.QPN).Text())
	}
	s += " src-addr " + c.Src
	if c.Dst != "" {
		s += " dst-addr " + c.Dst
	}
	return s
}

// countObjects prints one line for each NIC, like `rdma res`.
func (a *app) countObjects(ctx context.Context) error {
	counts := map[string]map[string]int{}
	for _, kind := range kinds {
		var res []api.Resource
		if err := a.client().Get(ctx, &res, "res", kind); err != nil {
			return err
		}
		for _, r := range res {
			if counts[r.NIC] == nil {
				counts[r.NIC] = map[string]int{}
			}
			counts[r.NIC][kind]++
		}
	}
	return a.show(counts, func(w io.Writer) {
		for _, nic := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(w, "%s:", nic)
			for _, kind := range kinds {
				fmt.Fprintf(w, " %s %d", kind, counts[nic][kind])
			}
			fmt.Fprintln(w)
		}
	})
}

func (a *app) stat() *cobra.Command {
	var watch time.Duration
	cmd := &cobra.Command{
		Use: "stat [NIC]", Short: "Show counters under their names in Linux", Args: about.Words(0, 1),
		Example: "  rocectl stat\n  rocectl stat rxe_a --watch 1s",
		RunE: func(c *cobra.Command, args []string) error {
			path := append([]string{"stat"}, args...)
			if watch < 0 {
				return about.Usage(fmt.Errorf("--watch %v is negative", watch))
			}
			if watch > 0 {
				return a.watch(c.Context(), path, watch)
			}
			stats, err := a.stats(c.Context(), path)
			if err != nil {
				return err
			}
			return a.show(stats, func(w io.Writer) {
				for _, s := range stats {
					fmt.Fprintf(w, "%s:\n", s.NIC)
					for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
						fmt.Fprintf(w, "     %s: %d\n", name, s.Counters[name])
					}
				}
			})
		},
	}
	cmd.Flags().DurationVar(&watch, "watch", 0, "print changes per second at this interval")
	return cmd
}

func (a *app) stats(ctx context.Context, path []string) (out []api.Stat, err error) {
	return out, a.client().Get(ctx, &out, path...)
}

// watch prints rates until the user interrupts it.
func (a *app) watch(ctx context.Context, path []string, every time.Duration) error {
	before := map[string]map[string]uint64{}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		stats, err := a.stats(ctx, path)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, s := range stats {
			if !first {
				a.rates(s, before[s.NIC], every)
			}
			before[s.NIC] = s.Counters
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (a *app) rates(s api.Stat, before map[string]uint64, every time.Duration) {
	rates := map[string]float64{}
	for name, v := range s.Counters {
		if d := v - before[name]; d != 0 {
			rates[name] = float64(d) / every.Seconds()
		}
	}
	if a.json {
		_ = json.NewEncoder(a.out).Encode(map[string]any{"nic": s.NIC, "per_second": rates}) // to a terminal or a pipe
		return
	}
	fmt.Fprintf(a.out, "%s %s", time.Now().Format(time.TimeOnly), s.NIC)
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		fmt.Fprintf(a.out, "  %s %.0f/s", name, rates[name])
	}
	fmt.Fprintln(a.out)
}

func (a *app) events() *cobra.Command {
	return &cobra.Command{
		Use: "events", Short: "Print asynchronous events as they occur", Args: about.Words(0, 0), Example: "  rocectl events --json",
		RunE: func(c *cobra.Command, _ []string) error {
			body, err := a.client().Stream(c.Context(), "GET", nil, "events")
			if err != nil {
				return err
			}
			defer body.Close()
			for d := json.NewDecoder(body); ; {
				var e api.Event
				if err := d.Decode(&e); err != nil {
					if c.Context().Err() != nil || errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
				a.printEvent(&e)
			}
		},
	}
}

func (a *app) printEvent(e *api.Event) {
	if a.json {
		_ = json.NewEncoder(a.out).Encode(e) // to a terminal or a pipe
		return
	}
	number := fmt.Sprint(e.Number)
	if e.Object == "qp" {
		number = bth.QPN(e.Number).Text()
	}
	fmt.Fprintf(a.out, "%s %s %s %s %s", e.Time.Format("15:04:05.000000"), e.NIC, e.Object, number, e.Event)
	if e.Status != "" {
		fmt.Fprintf(a.out, " %q", e.Status)
	}
	if e.PID != 0 {
		fmt.Fprintf(a.out, " pid %d", e.PID)
	}
	fmt.Fprintln(a.out)
}
