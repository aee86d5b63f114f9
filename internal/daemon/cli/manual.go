package cli

import (
	"fmt"
	"strings"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/daemon/config"
)

// introduction is the text before the keys.
const introduction = `The daemon reads one YAML file: that of "--config", else the user's "roced/roced.yaml" in "$XDG_CONFIG_HOME" (or "~/.config"),
else "/etc/roced.yaml". Root's daemon never reads the user's file. A file that every user can write is an error. Unknown keys are errors.
"roced check" reports all faults with line and column. "[]" means each element of a list, PROFILE the name of a transport.

A duration has a unit, such as 50us or 2s. A size is in bytes, or has a suffix K, M, G or T (powers of 1024). An octal mode is like that of
chmod(1).

"roced reload", SIGHUP and "systemctl reload roced" make the daemon read the file again. It applies changes of the keys marked for reload,
adds NICs, and removes those without clients. It refuses the whole file if any other key differs or if the owner of the file does.`

// environment is the text before the variables.
const environment = `A variable of the environment overrides a key outside of NICs. "--set KEY=VALUE" of the command line overrides both. Errors name
the variable or the option. An empty variable counts as unset, and an unknown "ROCED_" variable is an error. The daemon ignores the
variables that Kubernetes sets for a Service, if the name of the Service begins with roced. For a Service named roced these are "ROCED_PORT"
and all that begin with "ROCED_SERVICE_" or "ROCED_PORT_", provided that "ROCED_SERVICE_HOST" is set. NICs and lists come from the
file only. "roced check --effective" prints each value and its origin. "run_dir" has no variable, because "ROCED_RUN_DIR" selects the
daemon of clients.`

// example is a whole configuration.
const example = `  run_dir: /run/roced
  nics:
    - name: rxe_a
      port: {type: udp, interface: eth0}
      profile: irn
      link: {rate: 25e9, rtt: 20us, mtu: 4096}
      congestion: {algorithm: dcqcn, line_rate_bps: 25e9}`

// manual returns the manual page of the configuration.
func manual() about.Page {
	var keys [][2]string
	for _, k := range config.Keys() {
		text := fmt.Sprintf("%s.\n%s; default: %s. Example: %s", sentence(k.Meaning), kind(k), orNone(k.Default), k.Example)
		if k.Reload {
			text += ".\nA reload can change it"
		}
		keys = append(keys, [2]string{k.Name, strings.ReplaceAll(text, "`", "")})
	}
	return about.Page{Name: "roced.yaml", Section: 5, Short: "configuration of roced", Parts: []about.Part{
		{Title: "DESCRIPTION", Text: introduction},
		{Title: "KEYS", Items: keys},
		{Title: "ENVIRONMENT", Text: environment, Items: variables()},
		{Title: "EXAMPLES", Text: example},
		{Title: "SEE ALSO", Text: "roced(8), roced-fault(7)"},
	}}
}

// variables returns the variables of the environment, each with the sentence about its key.
func variables() (all [][2]string) {
	for _, k := range config.Scalars() {
		if name := config.Variable(k); name != "" {
			all = append(all, [2]string{name, k + "."})
		}
	}
	return all
}

// kind returns a key's type and unit.
func kind(k config.Key) string {
	if k.Unit == "" {
		return k.Type
	}
	return k.Type + ", " + k.Unit
}

func orNone(def string) string {
	if def == "" {
		return "none"
	}
	return def
}

// sentence begins with an upper-case letter unless the text begins with a value.
func sentence(s string) string {
	if word, _, _ := strings.Cut(s, " "); strings.ContainsAny(word, "`:") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
