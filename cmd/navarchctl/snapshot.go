package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/navarchctl/replay"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/obs"
)

// snapshotFlag is the name of the flag for the file of a report. A report is an archive from the command bug-report or
// snapshot save. Other commands can read a report in place of a control plane.
const snapshotFlag = "snapshot"

// reportReaders lists the commands that work on a report. All subcommands of a listed command work on a report, too.
var reportReaders = []string{"analyze", "authz", "describe", "explain", "leader", "patches", "plan", "problems", "proxy-config",
	"proxy-status", "removals list", "test", "version", "who-can", "why"}

// opened is a report that replaces the control plane. Each process of the report answers HTTP requests in memory.
type opened struct {
	file      string
	report    *report.Report
	processes []replay.Process
}

type openedKey struct{}

// openedOf returns the report of --snapshot; nil if the flag is not set.
func openedOf(ctx context.Context) *opened {
	if ctx == nil { // cobra sets no context for the completion of a command that does not run
		return nil
	}
	o, _ := ctx.Value(openedKey{}).(*opened)
	return o
}

// now returns the time at which the report of --snapshot was made. Without a report it returns the present time.
func now(ctx context.Context) time.Time {
	if o := openedOf(ctx); o != nil {
		return o.report.Index.Created
	}
	return time.Now()
}

// bindSnapshot adds --snapshot to all commands. Before a command runs, the report is opened and stored in the context
// of the command. Commands outside of reportReaders refuse the flag.
func bindSnapshot(root *cobra.Command) {
	root.PersistentFlags().String(snapshotFlag, "",
		"A file of bug-report or of snapshot save, which is read in place of a control plane.")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		file := cmd.Flag(snapshotFlag).Value.String()
		if file == "" {
			return nil
		}
		if err := readsReports(cmd); err != nil {
			return err
		}
		o, err := openReport(file)
		if err != nil {
			return err
		}
		for _, line := range o.remarks() {
			fmt.Fprintln(cmd.ErrOrStderr(), show.Printable(line))
		}
		cmd.SetContext(context.WithValue(cmd.Context(), openedKey{}, o))
		return nil
	}
}

// isReader reports whether the command with the given name works on a report.
func isReader(name string) bool {
	return slices.ContainsFunc(reportReaders, func(known string) bool { return name == known || strings.HasPrefix(name, known+" ") })
}

// readsReports returns an error if the command does not work on a report, or if another flag selects another source.
func readsReports(cmd *cobra.Command) error {
	name := commandName(cmd)
	if !isReader(name) {
		return fmt.Errorf("--%s: %s does not read reports: it reads a running control plane, a cluster or files. These commands read reports: %s",
			snapshotFlag, name, strings.Join(reportReaders, ", "))
	}
	for _, other := range []string{"server", "kubeconfig", "context", "envoy", "config-dir"} {
		if f := cmd.Flag(other); f != nil && f.Changed {
			return fmt.Errorf("--%s excludes --%s", snapshotFlag, other)
		}
	}
	return nil
}

// openReport reads a report from a file. A report without processes is an error. Errors name the flag and the file.
func openReport(file string) (*opened, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", snapshotFlag, err)
	}
	defer f.Close()
	r, err := report.Read(f, report.Usual)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", snapshotFlag, file, err)
	}
	if len(r.Processes) == 0 {
		return nil, fmt.Errorf("--%s %s: it has no process", snapshotFlag, file)
	}
	return &opened{file, r, replay.New(r)}, nil
}

// remarks returns the lines that each command prints first. They name the file and the time of the report, the report's
// version if it differs from this build's, and the missing replicas.
func (o *opened) remarks() (lines []string) {
	i := o.report.Index
	lines = append(lines, fmt.Sprintf("note: from the report %s of %s", o.file, i.Created.Format(time.RFC3339)))
	if i.Version != obs.Version {
		lines = append(lines, fmt.Sprintf(
			"warning: it was made by version %s; explain and plan are computed by this build, %s, which may plan otherwise", i.Version, obs.Version))
	}
	for _, m := range i.Missing {
		lines = append(lines, "warning: the report lacks replica "+m.Name+" and the proxies that only this replica serves: "+m.Reason)
	}
	return lines
}

// pages returns the processes of the report that served proxies, or all processes if everyRole is set.
func (o *opened) pages(everyRole bool) (all []page) {
	for _, p := range o.processes {
		if p.Serves || everyRole {
			all = append(all, page{address: p.Name, by: "--" + snapshotFlag, what: "the report's process",
				url: "http://localhost", client: p.Client})
		}
	}
	return all
}

// workload returns the name (NAME.NAMESPACE) of the alphabetically first proxy of a workload. The error means that the
// report has no such proxy.
func (o *opened) workload(namespace, name string) (string, error) {
	found := ""
	for _, p := range o.report.Processes {
		for i := range p.Proxies {
			n := &p.Proxies[i].Node
			if proxy := n.Name + "." + n.Namespace; n.Namespace == namespace && n.Workload == name && (found == "" || proxy < found) {
				found = proxy
			}
		}
	}
	if found == "" {
		return "", errors.New("no proxy in the report states that workload")
	}
	return found, nil
}
