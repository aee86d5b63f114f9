package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// document returns the page in Markdown.
func document(devices []device, known deviations, sections []section) string {
	var b strings.Builder
	b.WriteString(`# Results of the suite of rocedrill

For engineers who compare RoCEv2 devices: the outcomes of all scripts of ` + "`drill/suite`" + `, the deviations with their reasons, and the
coverage of the specification. ` + "`make interop`" + ` writes this page; ` + "[the reference](../reference/drill.md)" + ` describes the scripts.

Devices: ` + "`virtual`" + ` is our NIC on a virtual clock, ` + "`roced`" + ` a daemon of ours; ` + "`rxe-6.1` and `rxe-6.12`" + ` are Linux's rdma_rxe of Debian 12 and 13
in a virtual machine. Cells have the scripts that passed, failed (if any), and do not apply because the device lacks a capability (in parentheses).
`)
	if len(devices) == 0 {
		return b.String()
	}
	writeGroups(&b, devices)
	writeDeviations(&b, devices, known)
	writeSections(&b, sections)
	return b.String()
}

// group returns the folder of a script: the row of the table.
func group(script string) string { return path.Dir(script) }

// sum counts the outcomes of the scripts in a group, or of all if it is empty.
func (d *device) sum(of string) string {
	n := map[string]int{}
	for _, s := range d.Scripts {
		if of == "" || group(s.Script) == of {
			n[s.Outcome]++
		}
	}
	text := fmt.Sprint(n["passed"])
	if bad := n["failed"] + n["differs"] + n[hung]; bad > 0 {
		text += fmt.Sprintf(", %d failed", bad)
	}
	if n["not applicable"] > 0 {
		text += fmt.Sprintf(" (%d)", n["not applicable"])
	}
	return text
}

func writeGroups(b *strings.Builder, devices []device) {
	b.WriteString("\n## Outcomes\n\n| group |")
	for _, d := range devices {
		fmt.Fprintf(b, " %s |", d.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(devices)) + "\n")
	var groups []string
	for _, s := range devices[0].Scripts {
		if g := group(s.Script); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	for _, g := range append(groups, "") {
		name := g
		if g == "" {
			name = "**all**"
		}
		fmt.Fprintf(b, "| %s |", name)
		for _, d := range devices {
			fmt.Fprintf(b, " %s |", d.sum(g))
		}
		b.WriteString("\n")
	}
}

// writeDeviations lists the scripts that fail, each with the devices, the rule and the reason.
func writeDeviations(b *strings.Builder, devices []device, known deviations) {
	b.WriteString("\n## Deviations\n\nThe reason names the function of Linux's `drivers/infiniband/sw/rxe` that decides, and its lines in Linux 6.1.176 and 6.12.117.\n\n| script | device | rule | reason |\n|---|---|---|---|\n")
	for _, s := range devices[0].Scripts {
		rows := map[string][]string{} // devices by reason
		var order []string
		for _, d := range devices {
			if o := d.of(s.Script); o == nil || !o.bad() {
				continue
			}
			reason := known.reason(d.Name, s.Script)
			if d.of(s.Script).Outcome == hung {
				reason += " Afterwards the device does not answer."
			}
			if reason == "" {
				reason = "not known"
			}
			if rows[reason] == nil {
				order = append(order, reason)
			}
			rows[reason] = append(rows[reason], d.Name)
		}
		for _, reason := range order {
			fmt.Fprintf(b, "| %s | %s | %s (%s%s) | %s |\n", s.Script, strings.Join(rows[reason], ", "), s.About, s.Spec,
				map[bool]string{true: "", false: ", policy"}[s.Must], reason)
		}
	}
}

// section is the coverage of a section in the JSON of "rocedrill list --spec".
type section struct {
	Spec         string
	Must, Policy int
	Rules        []string
}

func writeSections(b *strings.Builder, sections []section) {
	b.WriteString("\n## Coverage\n\nScripts by section of the specification: demands (must), and choices of the device (policy); rules of `rocedrill model`.\n\n| section | must | policy | model |\n|---|--:|--:|--:|\n")
	must, policy, rules := 0, 0, 0
	for _, s := range sections {
		must, policy, rules = must+s.Must, policy+s.Policy, rules+len(s.Rules)
		fmt.Fprintf(b, "| %s | %d | %d | %d |\n", s.Spec, s.Must, s.Policy, len(s.Rules))
	}
	fmt.Fprintf(b, "| **%d sections** | %d | %d | %d |\n", len(sections), must, policy, rules)
}
