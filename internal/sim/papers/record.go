package papers

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/sweep"
)

// Record is the stored result of a row.
type Record struct {
	Full *Found `json:"full,omitempty"`
	Fast *Found `json:"fast,omitempty"`
	// Estimate is the computed number of link transmissions of the full form.
	Estimate uint64 `json:"estimated_link_transmissions"`
}

func recordFile(dir, id string) string { return filepath.Join(dir, id+".json") }

// ReadRecord reads the record of a row from a folder. Without a file it is empty.
func ReadRecord(dir, id string) (*Record, error) {
	rec := &Record{}
	text, err := os.ReadFile(recordFile(dir, id))
	if errors.Is(err, os.ErrNotExist) {
		return rec, nil
	}
	if err != nil {
		return nil, err
	}
	return rec, json.Unmarshal(text, rec)
}

// Write writes the record of a row.
func (rec *Record) Write(dir, id string) error {
	text, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		return err
	}
	return sweep.WriteFile(recordFile(dir, id), append(text, '\n'))
}

// shown returns the form of a row that the document shows: the full one if available.
func (rec *Record) shown() (f *Found, form string) {
	switch {
	case rec.Full != nil:
		return rec.Full, "full"
	case rec.Fast != nil:
		return rec.Fast, "fast"
	}
	return nil, ""
}

// Estimate returns the number of packets that enter links in a form of a row: data and acknowledgements of the
// payload, without losses.
func (r *Row) Estimate(fast bool, seeds int) (uint64, error) {
	sum := 0.0
	for _, x := range r.Runs(fast) {
		times := seeds
		if x.Other != "" {
			times = 1
		}
		c, err := r.config(&x, 1)
		if err != nil {
			return 0, err
		}
		n, err := transmissions(&c)
		if err != nil {
			return 0, err
		}
		sum += n * float64(times)
	}
	return uint64(sum), nil
}

func transmissions(c *sim.Config) (float64, error) {
	net, err := fabric.New(new(engine.Engine), fabric.Config{Graph: c.Graph, Switch: c.Switch, Seed: c.Seed})
	if err != nil {
		return 0, err
	}
	hops, n := 0, 0
	for h := range c.Graph.Hosts {
		if to := (h*7 + c.Graph.Hosts/2) % c.Graph.Hosts; to != h {
			hops += len(net.Path(h, to, nil))
			n++
		}
	}
	payload := float64(c.Payload)
	if c.Until > 0 {
		rate := float64(net.Path(0, 1, nil)[0].Rate())
		payload = min(payload, rate/8*c.Until.Seconds()*float64(c.Graph.Hosts))
	}
	mtu := c.MTU
	if mtu == 0 {
		mtu = 1000
	}
	return payload / float64(mtu) * 2 * float64(hops) / float64(max(n, 1)), nil
}
