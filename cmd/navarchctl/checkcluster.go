package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/check"
	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

const precheck = "precheck"

// errFailed is the command's error if a check failed.
var errFailed = errors.New("at least one check failed")

// checking contains the options of `navarchctl check`.
type checking struct {
	target
	pre     bool
	proxy   string
	upgrade string // version of --for-upgrade; empty: the flag is not set
	strict  bool
	format  output
}

func checkCommand() *cobra.Command {
	c := &checking{}
	cmd := &cobra.Command{
		Use:     "check [--pre | --proxy NAME[.NAMESPACE] | --for-upgrade VERSION]",
		Aliases: []string{precheck, "verify", "verify-install"},
		Short:   "Examine a control plane and what it needs of its cluster, and whether a workload would be served",
		Long: `check examines the API server, the definitions of Istio's kinds, and gateways; then, of each revision, the rights of its service
accounts, its leader and how far that is behind the cluster, its replicas and their clocks, etcd and the configuration as they see them, and the
webhooks: whether each replica would be believed, and, by dry runs, whether the API server calls them. Then it does at each replica what a workload
does: it shows the CA a token of the namespace's service account default, and asks for clusters by ADS. No certificate is issued.

  --pre          before there is a control plane: the API server, the definitions, gateways, webhooks that are in the way, and
                 your own rights to install the chart
  --proxy        one proxy instead: whether it is connected and in sync, what it refused, what is withheld from it, and errors
                 of its namespace. This needs no cluster (--server)
  --for-upgrade  besides, whether the control plane can be replaced by another version now: which versions run, whether each
                 role has a second replica, and whether proxies are in sync

A line is ok, unknown (you lack the right to read the object), warning, or failure. -o wide adds the limit of each check, its figure, and the
anchor of its remedy in deploy/docs/checks.md.`,
		Example: `  navarchctl check
  navarchctl check --pre --context west
  navarchctl check --for-upgrade 1.4.0 --strict
  navarchctl check --revision canary -o json

  # One proxy.
  navarchctl check --proxy ` + demoClient,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer c.close()
			c.pre = c.pre || cmd.CalledAs() == precheck
			results, err := c.results(cmd)
			if err != nil {
				return err
			}
			if err := c.format.write(cmd, c.rows(results)); err != nil {
				return err
			}
			switch {
			case check.Failed(results):
				return errFailed
			case c.strict && check.Warned(results):
				return exitError{exitWarned, "there are warnings (--strict)"}
			}
			return nil
		},
	}
	c.target.bind(cmd)
	f := cmd.Flags()
	f.BoolVar(&c.pre, "pre", false, "Before there is a control plane: look at what it needs, and at your rights to install it.")
	f.StringVar(&c.proxy, "proxy", "", "Examine this proxy: NAME[.NAMESPACE] or KIND/NAME.")
	f.StringVar(&c.upgrade, "for-upgrade", "", "Examine also whether the control plane can be replaced by this version.")
	f.BoolVar(&c.strict, "strict", false, "Exit with 2 if there are warnings, and no failure.")
	cmd.MarkFlagsMutuallyExclusive("pre", "proxy", "for-upgrade")
	completesBy(cmd, "proxy", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return c.complete(cmd, nil, begun)
	})
	c.format.bindRows(cmd)
	return cmd
}

// results runs the checks that the flags select, and returns their results.
func (c *checking) results(cmd *cobra.Command) ([]check.Result, error) {
	if c.proxy != "" {
		facts, err := c.facts(cmd)
		return check.OfProxy(facts, time.Now()), err
	}
	if c.server != "" {
		return nil, errors.New("--server goes with --proxy: the other checks ask the API server of a kubeconfig, and find the replicas by it")
	}
	return c.looked(cmd.Context(), &c.cluster)
}

// looked runs the checks of a cluster, that is, all checks except those of --proxy. It returns an error if the
// kubeconfig cannot be used.
func (c *checking) looked(ctx context.Context, flags *cluster.Flags) ([]check.Result, error) {
	in, err := flags.Open()
	if err != nil {
		return nil, err
	}
	var pods []*cluster.Pod
	defer func() {
		for _, pod := range pods {
			pod.Close()
		}
	}()
	return check.Run(ctx, check.Config{API: in.API, Namespace: in.Namespace, Tool: obs.Version, Upgrade: c.upgrade,
		Revision: in.Revision, Pre: c.pre, Replica: func(of *corev1.Pod) check.Replica {
			pod := in.Pod(of)
			pods = append(pods, pod)
			return check.Replica{Name: pod.String(), Monitoring: pod.Monitoring, Client: pod.Client(), Dial: pod.Dial}
		}}), nil
}

// facts reads the state of the proxy from the replicas, and the problems of objects in the proxy's namespace. It
// returns an error if the name does not resolve, or if no replica gives a usable answer.
func (c *checking) facts(cmd *cobra.Command) (f check.Proxy, err error) {
	ctx := cmd.Context()
	if f.Name, err = c.resolve(ctx, c.proxy); err != nil {
		return f, err
	}
	all, partial, err := c.statuses(ctx, f.Name)
	if err != nil {
		return f, err
	}
	for i := range all {
		if p := &all[i]; p.Proxy == f.Name {
			f.Replicas = append(f.Replicas, cmp.Or(p.replica, c.where))
			addTypes(&f, p)
		}
	}
	namespace := f.Name[strings.LastIndexByte(f.Name, '.')+1:] // names of Pods may have dots
	answer, err := c.problems(ctx, url.Values{"namespace": {namespace}, "severity": {string(problem.Error)}})
	if err != nil {
		return f, err
	}
	for _, p := range answer.Items {
		f.Errors = append(f.Errors, p.Object+": "+p.Message)
	}
	f.Missing = slices.Clone(c.missing)
	for _, m := range append(partial, answer.Partial...) {
		if text := m.Replica + " (" + m.Reason + ")"; !slices.Contains(f.Missing, text) {
			f.Missing = append(f.Missing, text)
		}
	}
	if len(f.Behind) > 0 { // only the API /api/v1 states the time; older replicas lack this API
		answer, err := askAny[fleetapi.Proxy](ctx, &c.controlPlane, "proxies", url.Values{"name": {f.Name}, "state": {"behind"}})
		for i := range answer.Items {
			if p := &answer.Items[i]; err == nil && p.Proxy == f.Name {
				f.Since = p.Since
			}
		}
	}
	return f, nil
}

// addTypes copies facts from the status p of a proxy to f: the resource types that are not in sync, the refused
// resources, and the withheld resources.
func addTypes(f *check.Proxy, p *proxyStatus) {
	for t := range xds.NumTypes {
		s := &p.types[t]
		if s.Subscribed && !s.Synced {
			f.Behind = append(f.Behind, t.Noun()+"s")
		}
		for _, r := range s.Refused {
			f.Refused = append(f.Refused, t.Noun()+" "+r.Name+": "+r.Text)
		}
		for _, w := range s.Withheld {
			f.Withheld = append(f.Withheld, t.Noun()+" "+w.Name+": "+w.Text)
		}
	}
}

// rows prepares results for all output formats. With -o name, the names of the checks that are not ok are printed.
func (c *checking) rows(results []check.Result) rows {
	r := rows{value: results, table: func(w io.Writer, wide bool) error { return checkTable(w, results, wide) }}
	for _, one := range results {
		if one.Status != check.OK {
			r.names = append(r.names, string(one.Name))
		}
	}
	switch {
	case c.pre:
		r.next = nextIs("once the chart is installed", "check")
	case c.proxy != "":
		r.next = nextIs("its resources, and what it refused", "proxy-status", c.proxy)
	default:
		r.next = nextIs("which proxies are in sync", "proxy-status")
	}
	return r
}

// checkTable prints the results. Below the table it prints the remedies of the checks that are not ok.
func checkTable(w io.Writer, results []check.Result, wide bool) error {
	rows := [][]string{{"CHECK", "STATUS", "FOUND"}}
	if wide {
		rows = [][]string{{"CHECK", "NAME", "STATUS", "LIMIT", "FIGURE", "FOUND", "REMEDY"}}
	}
	for _, r := range results {
		row := []string{r.Check, string(r.Status), r.Found}
		if wide {
			row = []string{r.Check, string(r.Name), string(r.Status), r.Limit, r.Figure, r.Found, r.Remedy}
		}
		rows = append(rows, row)
	}
	if err := show.Table(w, rows); err != nil {
		return err
	}
	first := true
	for _, r := range results {
		if r.Do == "" || r.Status == check.OK {
			continue
		}
		if first {
			fmt.Fprintln(w)
			first = false
		}
		if _, err := fmt.Fprintf(w, "%s: %s (%s)\n", show.Printable(r.Check), r.Do, r.Remedy); err != nil {
			return err
		}
	}
	return nil
}
