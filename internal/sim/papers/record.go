package papers

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// Stored returns the folder with the records of a folder of rows.
func Stored(rows string) string { return filepath.Join(rows, "stored") }

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

// sumsFile has the checksums of all records of a folder, as sha256sum writes and checks them.
const sumsFile = "SHA256SUMS"

// writeSums writes the checksums of all records of a folder.
func writeSums(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.json")) // in order
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		b.WriteString(sumLine(text, name))
	}
	return sweep.WriteFile(filepath.Join(dir, sumsFile), []byte(b.String()))
}

func sumLine(text []byte, name string) string {
	return fmt.Sprintf("%x  %s\n", sha256.Sum256(text), filepath.Base(name))
}

// CheckSum returns an error if the record of a row differs from its checksum.
func CheckSum(dir, id string) error {
	name := recordFile(dir, id)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return err
	}
	if !strings.Contains(string(sums), sumLine(text, name)) {
		return fmt.Errorf("%s: differs from its checksum in %s", name, sumsFile)
	}
	return nil
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
		sum += float64(n * float64(times))
	}
	return uint64(sum), nil
}

func transmissions(c *sim.Config) (float64, error) {
	net, err := fabric.New(new(engine.Engine), fabric.Config{Graph: c.Graph, Switch: c.Switch, Seed: c.Seed})
	if err != nil {
		return 0, err
	}
	hops, n := 0, 0
	for h := range c.Hosts() {
		if to := (h*7 + c.Hosts()/2) % c.Hosts(); to != h {
			hops += len(net.Path(h, to, nil))
			n++
		}
	}
	payload := float64(c.Payload)
	if c.Until > 0 {
		rate := float64(net.Path(0, 1, nil)[0].Rate())
		payload = min(payload, rate/8*c.Until.Seconds()*float64(c.Hosts()))
	}
	mtu := c.MTU
	if mtu == 0 {
		mtu = 1000
	}
	return payload / float64(mtu) * 2 * float64(hops) / float64(max(n, 1)), nil
}
