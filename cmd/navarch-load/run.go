package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/report"
	"navarch.io/navarch/loadtest/scene"
)

// runFlags are the flags of the command run.
type runFlags struct {
	scene.Options
	addresses []string
	debug     []string
	metrics   []string
	pids      []int
	token     string
	form      string
	label     string
	out       string
	keep      bool
	strict    bool
	limit     time.Duration
}

// runCommand returns the command run.
func runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run SCENARIO...",
		Short: "Play scenarios, or suites of them, and report",
		Long:  "Play scenarios, or suites of them, and report. Suites: " + strings.Join(suites(), ", ") + ". See navarch-load list.",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.bind(cmd)
	return cmd
}

// bind defines the flags.
func (f *runFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Navarchd, "navarchd", "", "Program to start for each scenario, on loopback; ended with it.")
	flags.StringVar(&f.Envoy, "envoy", "", "Program of Envoy, for the scenarios of gateways with a real one.")
	flags.StringArrayVar(&f.Env, "env", nil, "Environment variable of the started navarchd, NAME=VALUE.")
	flags.IntVar(&f.Replicas, "replicas", 0, "Least number of navarchd replicas (default: as the scenario says).")
	flags.StringSliceVar(&f.Etcd, "etcd", nil, "Addresses of an etcd for the started navarchd (default: an embedded etcd).")
	flags.StringSliceVar(&f.addresses, "address", nil, "Address of a server that runs already, host:port; several for several replicas.")
	flags.StringSliceVar(&f.debug, "debug-address", nil, "Address of the debug pages of each server, in the order of --address.")
	flags.StringSliceVar(&f.metrics, "metrics-address", nil, "Address of the metrics page of each server, in the order of --address.")
	flags.IntSliceVar(&f.pids, "pid", nil, "Process ID of each server on this machine, to measure it; in the order of --address.")
	flags.StringVar(&f.ConfigDir, "config-dir", "",
		"Folder that those servers read; the world is written to it (it must be empty, or hold one).")
	flags.StringVar(&f.form, "form", string(mesh.Kubernetes),
		"Form of the services: kubernetes, or istio (ServiceEntries, for istiod's --configDir).")
	flags.DurationVar(&f.Settle, "settle", 10*time.Second, "Time that a server whose debug pages are not known has to read a world.")
	flags.StringVar(&f.TLS.Roots, "tls-roots", "", "File of certificates that those servers' are verified against; with it proxies speak TLS.")
	flags.StringVar(&f.TLS.Cert, "tls-cert", "", "File of the certificate of all proxies.")
	flags.StringVar(&f.TLS.Key, "tls-key", "", "File of the key of --tls-cert.")
	flags.StringVar(&f.TLS.ServerName, "tls-server-name", "", "Name that the servers' certificate must have.")
	flags.StringVar(&f.token, "token-file", "", "File of a token that all proxies show.")
	flags.Float64Var(&f.Scale, "scale", 1, "Factor on the sizes of worlds and fleets; figures have no outcome but at 1.")
	flags.IntVar(&f.Proxies, "proxies", 0, "Number of proxies (default: as the scenario says).")
	flags.IntVar(&f.Repeats, "repeats", 5, "How often each edit is measured.")
	flags.Uint64Var(&f.Seed, "seed", 0, "Seed of the worlds (default: the preset's).")
	flags.Float64Var(&f.Sample, "sample", .01, "Share of proxies that decode and validate all contents.")
	flags.Float64Var(&f.SotW, "sotw", 0, "Share of proxies that speak the protocol's older form, state of the world.")
	flags.BoolVar(&f.Stock, "stock-nodes", false, "Send nodes as large as a stock Envoy's, 61 KB.")
	flags.Float64Var(&f.JoinRate, "join-rate", 0, "Proxies that start each second (default: as fast as they can).")
	flags.DurationVar(&f.WarmTimeout, "warm-timeout", 0,
		"Time after which a cluster or listener that still waits for a resource is a violation (default: 1m, and 50 ms for each proxy).")
	flags.IntVar(&f.Workers, "processes", -1, "Processes of simulated proxies; 0: in this one (default: by the limit of open files).")
	flags.Float64Var(&f.AttackCPU, "attack-cpu", .5, "Cores that attackers may use, in a cgroup; 0: in none.")
	flags.StringSliceVar(&f.Attacks, "attacks", nil, "Names of the attacks that are carried out (default: all that the scenario has).")
	flags.DurationVar(&f.AttackSpan, "attack-span", 0,
		"Time that attackers go on (default: as the scenario says; figures of a shorter time are not judged).")
	flags.StringVar(&f.label, "label", "", "Name of what is measured, for reports and comparisons (default: navarch, or the address).")
	flags.StringVar(&f.out, "out", "out/load", "Folder for result.json, report.html and, with --keep, worlds and logs.")
	flags.BoolVar(&f.keep, "keep", false, "Keep worlds, data and logs of the servers.")
	flags.BoolVar(&f.strict, "strict", false, "Fail if a target is missed; failures and violations always fail the run.")
	flags.DurationVar(&f.limit, "limit", time.Hour, "Longest time for everything.")
	cmd.MarkFlagsMutuallyExclusive("navarchd", "address")
	cmd.MarkFlagsOneRequired("navarchd", "address")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
}

// run runs the scenarios and writes the report. Errors: unknown scenarios, invalid flags, a folder or file that cannot
// be written, a failed scenario, a violation of the protocol, and with --strict a missed target.
func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	scenarios, err := scene.Find(args...)
	if err != nil {
		return err
	}
	if err := f.complete(); err != nil {
		return err
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	if f.WorkDir, err = os.MkdirTemp(f.workBase(), "navarch-load-"); err != nil {
		return err
	}
	if !f.keep {
		defer os.RemoveAll(f.WorkDir)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.limit)
	defer cancel()
	screen := newScreen(cmd.ErrOrStderr(), len(scenarios))
	f.Show = screen.show
	result := report.Result{Version: report.Version, Label: f.label, Started: time.Now().UTC(),
		Command: command(os.Args[1:]), Machine: machine()}
	for _, sc := range scenarios {
		screen.begin(sc.Name, sc.Title)
		one := scene.Run(ctx, sc, f.Options)
		screen.end(one)
		result.Scenarios = append(result.Scenarios, one)
		if ctx.Err() != nil {
			break
		}
	}
	result.Seconds = time.Since(result.Started).Seconds()
	return f.leave(cmd, result)
}

// workBase returns the parent folder of the servers' data. With --keep it is the report's folder. Without --keep it is
// "", which means the system's temporary folder.
func (f *runFlags) workBase() string {
	if f.keep {
		return f.out
	}
	return ""
}

// leave writes the report and prints the table. Errors: a file that cannot be written, a failed scenario or a
// violation, and with --strict a missed target. The error about scenarios names the first scenario that failed or in
// which the protocol was violated.
func (f *runFlags) leave(cmd *cobra.Command, result report.Result) error {
	err := errors.Join(result.WriteFile(filepath.Join(f.out, "result.json")), writePage(filepath.Join(f.out, "report.html"), result),
		result.Table(cmd.OutOrStdout()))
	if err != nil {
		return err
	}
	for _, s := range result.Scenarios {
		if s.Failed != "" || s.Violated() > 0 {
			return fmt.Errorf("%s: see %s", s.Name, filepath.Join(f.out, "report.html"))
		}
	}
	if f.strict && !result.Good() {
		return errors.New("a target was missed")
	}
	return nil
}

// complete validates the flags together and sets defaults. Errors name the flags.
func (f *runFlags) complete() error {
	if f.Scale <= 0 || f.Repeats < 1 || f.Sample < 0 || f.Sample > 1 ||
		f.SotW < 0 || f.SotW > 1 || f.Proxies < 0 || f.AttackCPU < 0 || f.AttackSpan < 0 {
		return errors.New("--scale and --repeats must be positive, --sample and --sotw between 0 and 1, --proxies, --attack-cpu and " +
			"--attack-span not negative")
	}
	f.Form = mesh.Form(f.form)
	if f.Navarchd == "" {
		if f.ConfigDir == "" {
			return errors.New("--config-dir is needed with --address: the folder that the server reads")
		}
		if len(f.addresses) == 0 {
			return errors.New("--address: want host:port")
		}
		if max(len(f.debug), len(f.metrics), len(f.pids)) > len(f.addresses) {
			return errors.New("--debug-address, --metrics-address and --pid go with --address: one for each, in the same order")
		}
		for i, address := range f.addresses {
			one := &scene.Server{Name: "server-" + strconv.Itoa(i+1), Addr: address}
			if i < len(f.debug) {
				one.Debug = f.debug[i]
			}
			if i < len(f.metrics) {
				one.Metrics = f.metrics[i]
			}
			if i < len(f.pids) {
				one.PID = f.pids[i]
			}
			f.Servers = append(f.Servers, one)
		}
	} else if path, err := filepath.Abs(f.Navarchd); err != nil {
		return err
	} else if f.Navarchd = path; f.ConfigDir != "" {
		return errors.New("--config-dir goes with --address: a navarchd that is started here reads a folder of its own")
	}
	if f.token != "" {
		raw, err := os.ReadFile(f.token)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		f.Header = [][2]string{{"authorization", "Bearer " + strings.TrimSpace(string(raw))}}
	}
	if f.label == "" {
		if f.label = "navarch"; f.Navarchd == "" {
			f.label = f.addresses[0]
		}
	}
	return f.processes()
}

// processes sets the commands that start workers and attackers, and the number of files that a process may open.
func (f *runFlags) processes() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.WorkArgs, f.AttackArgs = []string{self, "worker"}, []string{self, "attack"}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	f.Files = int(min(limit.Cur, math.MaxInt32)) // Go's runtime has raised it to the hard limit
	return nil
}

// command returns a copy of the command line for reports. It reduces each path to the last element, because folders
// are private to the machine.
func command(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		flag, value, found := strings.Cut(a, "=")
		if found && strings.HasPrefix(flag, "-") && strings.Contains(value, "/") {
			args[i] = flag + "=" + filepath.Base(value)
		} else if strings.Contains(a, "/") {
			args[i] = filepath.Base(a)
		}
	}
	return args
}

// suites returns the names of all suites, sorted.
func suites() []string {
	var names []string
	for name := range scene.Suites {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
