package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/navarchctl/show"
)

// collection contains the flags of bug-report and snapshot save.
type collection struct {
	at       controlPlane
	contents report.Contents
	file     string // --out; empty: run chooses a name with the time
	envoys   bool   // true: the archive also has dumps of Envoys
}

func bugReportCommand() *cobra.Command {
	c := &collection{at: controlPlane{everyRole: true}, contents: report.Full}
	cmd := &cobra.Command{
		Use:   "bug-report",
		Short: "Write an archive about the whole control plane, for support and for --snapshot",
		Long: `Asks one replica, which asks the others, and writes an archive: versions, flags, environment, fleet, records, proxies with
their resources and acknowledgements, refused and withheld versions, problems, the last changes, goroutines, log lines, and metrics
twice, ten seconds apart. Of at most 20 proxies that refuse something or are behind, it adds what their Envoys have, through the API server.

Private keys are never part of it, and values that look like credentials are cut. It has names and addresses of your mesh: read it
before you give it away. With --snapshot FILE the reading commands work on it, without the control plane.`,
		Example: `  navarchctl bug-report
  navarchctl bug-report --out report.tgz
  navarchctl --snapshot report.tgz proxy-status`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.bind(cmd, "bug-report")
	cmd.Flags().BoolVar(&c.envoys, "envoys", true, "Add what the Envoys of ill proxies have.")
	return cmd
}

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Keep the state of the control plane in a file",
		Long: `A snapshot has the records and the proxies of the control plane, with their resources and acknowledgements. It is a bug-report
without logs, flags, environment, goroutines and metrics.`,
		Example: "  navarchctl snapshot save --out mesh.tgz\n  navarchctl --snapshot mesh.tgz plan -f routes.yaml"}
	c := &collection{at: controlPlane{everyRole: true}, contents: report.Brief}
	save := &cobra.Command{Use: "save", Short: "Write a snapshot, for --snapshot",
		Example: "  navarchctl snapshot save\n  navarchctl snapshot save --out mesh.tgz",
		Args:    cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) }}
	c.bind(save, "snapshot")
	cmd.AddCommand(save)
	return cmd
}

func (c *collection) bind(cmd *cobra.Command, name string) {
	c.at.bind(cmd.Flags())
	cmd.Flags().StringVar(&c.file, "out", "", "The file to write (default: navarch-"+name+"-TIME.tgz); it must not exist.")
}

// run writes the archive to a file that must not exist. If the archive cannot be written, it removes the file.
func (c *collection) run(cmd *cobra.Command) error {
	defer c.at.close()
	if c.file == "" {
		c.file = "navarch-" + string(c.contents) + "-" + time.Now().UTC().Format("20060102T150405Z") + ".tgz"
	}
	out, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	r, err := c.write(cmd, out)
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(c.file))
	}
	return c.summary(cmd, r)
}

// write collects the archive and writes it to out. It returns the decoded archive. Errors: no process makes a report,
// the archive exceeds the limits report.Usual, or out cannot be written.
func (c *collection) write(cmd *cobra.Command, out *os.File) (*report.Report, error) {
	ctx := cmd.Context()
	if c.contents == report.Full {
		fmt.Fprintln(cmd.ErrOrStderr(), "asking the control plane; metrics are read twice, ten seconds apart")
	}
	main, err := c.ask(ctx)
	if err != nil {
		return nil, err
	}
	r, err := report.Read(bytes.NewReader(main), report.Usual)
	if err != nil {
		return nil, fmt.Errorf("the answer of the control plane: %w", err)
	}
	others := c.others(cmd, r)
	last := report.NewWriter(time.Now())
	if c.envoys {
		list, dumps := c.dumps(ctx, r)
		if err := last.Envoys(list, dumps); err != nil {
			return nil, err
		}
	}
	end, err := last.Member(true)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(others, main, end) // main comes after others, because readers use the last index
	if r, err = report.Read(bytes.NewReader(all), report.Usual); err != nil {
		return nil, err
	}
	_, err = out.Write(all)
	return r, err
}

// reportPatience is the time limit of one request for a report.
const reportPatience = 100 * time.Second

// reportPath returns the path of a report at the API. The report covers all replicas. If the argument alone is true, it
// covers only the process that serves the request.
func reportPath(contents report.Contents, alone bool) string {
	q := url.Values{"contents": {string(contents)}}
	if alone {
		q.Set("alone", "true")
		q.Set("records", "false")
	}
	return fleetapi.Root + "report?" + q.Encode()
}

// ask requests the report of the fleet. It first sends a short request to find a process that works. Then it requests
// the report from the process that answered first. After a failure it tries the other processes one by one. It stops at
// a refusal that other processes would repeat (final). The error joins the errors of the processes.
func (c *collection) ask(ctx context.Context) ([]byte, error) {
	if _, err := askAny[struct{}](ctx, &c.at, "replicas", url.Values{}); err != nil {
		return nil, err
	}
	var failed []error
	for _, p := range c.at.found { // the process that answered askAny is now the first
		body, err := p.within(ctx, reportPatience, http.MethodGet, reportPath(c.contents, false), "", nil)
		if err == nil {
			return body, nil
		}
		if failed = append(failed, err); final(err) {
			break
		}
	}
	return nil, errors.Join(failed...)
}

// others requests the reports of single processes that the report r does not cover. These are processes that serve no
// proxies, because replicas do not request reports from them. It returns the concatenated reports. For a process that
// fails, it prints a warning.
func (c *collection) others(cmd *cobra.Command, r *report.Report) (all []byte) {
	known := map[string]bool{}
	for _, p := range r.Processes {
		known[p.Name] = true
	}
	for _, m := range r.Index.Missing {
		known[m.Name] = true
	}
	rest := slices.DeleteFunc(slices.Clone(c.at.found), func(p page) bool {
		return len(c.at.found) == 1 || known[p.address[strings.LastIndexByte(p.address, '/')+1:]] // a process is named like its Pod
	})
	parts := make([][]byte, len(rest))
	failed := atEach(rest, func(i int, p page) error {
		name, err := c.alone(cmd.Context(), p, report.Brief, &parts[i])
		if err != nil || known[name] {
			parts[i] = nil
			return err
		}
		if c.contents != report.Brief {
			_, err = c.alone(cmd.Context(), p, c.contents, &parts[i])
		}
		return err
	})
	for i, err := range failed {
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", show.Printable(err.Error()))
			continue
		}
		all = append(all, parts[i]...)
	}
	return all
}

// alone requests the report of one process, stores the report in *into, and returns the name of the process. It is an
// error if the answer does not contain exactly one process.
func (c *collection) alone(ctx context.Context, p page, contents report.Contents, into *[]byte) (name string, err error) {
	if *into, err = p.within(ctx, reportPatience, http.MethodGet, reportPath(contents, true), "", nil); err != nil {
		return "", err
	}
	part, err := report.Read(bytes.NewReader(*into), report.Usual)
	if err == nil && len(part.Processes) != 1 {
		err = fmt.Errorf("it has %d processes", len(part.Processes))
	}
	if err != nil {
		return "", fmt.Errorf("%s: its answer is not the report of one process: %w", p.address, err)
	}
	return part.Processes[0].Name, nil
}

// summary prints the size and the contents of the archive. It also prints each missing part with the reason.
func (c *collection) summary(cmd *cobra.Command, r *report.Report) error {
	info, err := os.Stat(c.file)
	if err != nil {
		return err
	}
	proxies := 0
	for _, p := range r.Processes {
		proxies += len(p.Proxies)
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s: %s, %d processes, %s proxies", c.file, fileSize(info.Size()), len(r.Processes), show.Thousands(proxies))
	if r.Snapshot != nil {
		fmt.Fprintf(w, ", records of revision %d", r.Snapshot.Revision())
	}
	fmt.Fprintln(w)
	for _, m := range r.Index.Missing {
		fmt.Fprintln(w, show.Printable("not in it: replica "+m.Name+": "+m.Reason))
	}
	for _, p := range r.Processes {
		for _, m := range p.Missing {
			fmt.Fprintln(w, show.Printable("not in it: "+m.Name+" of "+p.Name+": "+m.Reason))
		}
	}
	for _, name := range c.at.missing {
		fmt.Fprintln(w, show.Printable("not in it: "+name))
	}
	for _, e := range r.Envoys {
		if e.Error != "" {
			fmt.Fprintln(w, show.Printable("not in it: the Envoy of "+e.Proxy+", which is "+e.State+": "+e.Error))
		}
	}
	_, err = fmt.Fprintf(w, "\nit has names and addresses of your mesh, and no keys: tar tzf %[1]s lists it\n"+
		"read it with: navarchctl --snapshot %[1]s proxy-status\n", c.file)
	return err
}

// fileSize formats a number of bytes. Below 1,000,000 bytes the unit is KB, rounded up, and otherwise MB.
func fileSize(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%d KB", (n+999)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
