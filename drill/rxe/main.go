// Command drill runs the suite of rocedrill against all devices, and writes docs/results/drill.md: outcomes by group, deviations
// with their reasons, and coverage by section.
//
// A script that fails must have a reason in deviations.txt, and a script with a reason must fail. Devices in a virtual machine
// are left out where the machine cannot be built.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// options are the command's options.
type options struct {
	bin, out, suite string
	duts            []string
	scripts         []string // a sample; all if empty
	flags           []string // of rocedrill
}

// outcome is the outcome of a script in the JSON of rocedrill.
type outcome struct {
	Script, About, Spec, Outcome, Reason string
	Must                                 bool
	Line                                 int
}

// device is a device with the outcomes of all scripts.
type device struct {
	Name    string `json:"dut"`
	Lost    string
	Scripts []outcome
}

// sample is the part of the suite that -short runs: every kind of answer in a few seconds.
var sample = []string{"requester/nak_seq.drill", "responder/psn", "responder/rights"}

func main() {
	var o options
	short := flag.Bool("short", false, "run a sample against Linux 6.1 only")
	duts := flag.String("duts", "virtual,roced,rxe-6.1,rxe-6.12", "devices")
	flag.StringVar(&o.bin, "bin", "bin", "folder of the programs")
	flag.StringVar(&o.out, "out", "", "document to write; none if empty")
	flag.StringVar(&o.suite, "suite", "drill/suite", "folder of the scripts")
	flag.Parse()
	o.duts = strings.Split(*duts, ",")
	if *short {
		o.duts, o.scripts = []string{"rxe-6.1"}, sample
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(1)
	}
}

// run runs all devices, writes the document, and compares the failures with the known deviations.
func run(o options) error {
	known, err := parseDeviations(deviationsText)
	if err != nil {
		return err
	}
	devices, err := runAll(o, known)
	errs := []error{err, inVLAN(o, known)}
	if o.out != "" {
		sections, err := coverage(o)
		errs = append(errs, err, os.WriteFile(o.out, []byte(document(devices, known, sections)), 0o644))
	}
	return errors.Join(errs...)
}

// runAll runs all devices and compares their failures with the known ones.
func runAll(o options, known deviations) (devices []device, err error) {
	var errs []error
	for _, name := range o.duts {
		d, err := drillAll(o, name)
		if errors.Is(err, errSkip) {
			fmt.Println("drill:", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		d.shorten(o.suite)
		fmt.Printf("%s: %s\n", strings.Join(append([]string{name}, o.flags...), " "), d.sum(""))
		devices = append(devices, d)
		errs = append(errs, known.check(&d))
	}
	return devices, errors.Join(errs...)
}

// inVLAN runs a sample on the devices of Linux in a VLAN.
func inVLAN(o options, known deviations) error {
	o.scripts, o.flags = sample, []string{"--vlan", "7"}
	o.duts = slices.DeleteFunc(slices.Clone(o.duts), func(name string) bool { return !strings.HasPrefix(name, "rxe-") })
	_, err := runAll(o, known)
	return err
}

// errSkip means that a device is not possible on this system.
var errSkip = errors.New("skipped")

// Exit codes of rocedrill if the device cannot be reached, and if a script is inconclusive.
const lost, late = 3, 5

// list returns the paths of the scripts to run.
func list(o options) (paths []string, err error) {
	args := []string{"list", "--json"}
	for _, s := range o.scripts {
		args = append(args, filepath.Join(o.suite, s))
	}
	if len(o.scripts) == 0 {
		args = append(args, o.suite)
	}
	out, err := exec.Command(filepath.Join(o.bin, "rocedrill"), args...).Output()
	if err != nil {
		return nil, err
	}
	var scripts []outcome
	if err := json.Unmarshal(out, &scripts); err != nil {
		return nil, err
	}
	for _, s := range scripts {
		paths = append(paths, s.Script)
	}
	return paths, nil
}

// hung is the outcome of a script after which the device does not answer.
const hung = "hung"

// drillAll runs all scripts. If a script hangs the device, drillAll runs the scripts after it on a new device.
func drillAll(o options, dut string) (device, error) {
	sum := device{Name: dut}
	scripts, err := list(o)
	for len(scripts) > 0 && err == nil {
		var d device
		if d, err = drill(o, dut, scripts); err != nil {
			break
		}
		sum.Scripts = append(sum.Scripts, d.Scripts...)
		n := len(d.Scripts)
		if d.Lost != "" && n == 0 {
			err = fmt.Errorf("%s: %s", dut, d.Lost)
		} else if d.Lost != "" {
			last := &sum.Scripts[len(sum.Scripts)-1]
			last.Outcome, last.Reason = hung, d.Lost
		}
		scripts = scripts[n:]
	}
	return sum, err
}

// drill runs rocedrill.
func drill(o options, dut string, scripts []string) (d device, err error) {
	args := []string{"run", "--json", "--dut", dut}
	if dut != "virtual" { // its clock is exact
		args = append(args, "--slack", "3s")
	}
	args = append(args, o.flags...)
	c := exec.Command(filepath.Join(o.bin, "rocedrill"), append(args, scripts...)...)
	var out, diag bytes.Buffer
	c.Stdout, c.Stderr = &out, &diag
	err = c.Run()
	if code := c.ProcessState.ExitCode(); code == lost && strings.Contains(diag.String(), "cannot be built here") {
		return d, fmt.Errorf("%w: %s", errSkip, strings.TrimSpace(diag.String()))
	} else if code != lost && code != late && code > 1 || code < 0 || out.Len() == 0 {
		return d, fmt.Errorf("%v: %w\n%s", c.Args, err, diag.String())
	}
	err = json.Unmarshal(out.Bytes(), &d)
	d.Scripts = slices.DeleteFunc(d.Scripts, func(s outcome) bool { return s.Outcome == "not run" })
	return d, err
}

// coverage returns the sections that the suite covers.
func coverage(o options) (list []section, err error) {
	out, err := exec.Command(filepath.Join(o.bin, "rocedrill"), "list", "--spec", "--json", o.suite).Output()
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(out, &list)
}

// shorten makes the names of scripts relative to the suite.
func (d *device) shorten(suite string) {
	for i := range d.Scripts {
		if name, err := filepath.Rel(suite, d.Scripts[i].Script); err == nil {
			d.Scripts[i].Script = strings.TrimSuffix(name, ".drill")
		}
	}
}

// of returns the outcome of a script.
func (d *device) of(script string) *outcome {
	for i := range d.Scripts {
		if d.Scripts[i].Script == script {
			return &d.Scripts[i]
		}
	}
	return nil
}
