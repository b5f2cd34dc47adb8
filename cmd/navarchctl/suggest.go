package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/compare"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/cmd/navarchctl/suggest"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/files"
)

func suggestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "suggest",
		Short:   "Suggest objects, from what proxies do",
		Example: "  navarchctl suggest sidecar --live -n shop",
	}
	cmd.AddCommand(suggestSidecarCommand())
	return cmd
}

// suggesting contains the flags of suggest sidecar, and its report.
type suggesting struct {
	configured
	live      bool
	namespace string
	envoys    []string
	atLeast   time.Duration // --for
	format    output

	usage  []suggest.Usage
	nodes  []view.Node // nodes[i] is the node of the proxy of usage[i]
	report suggest.Report
}

func suggestSidecarCommand() *cobra.Command {
	s := &suggesting{}
	cmd := &cobra.Command{
		Use:   "sidecar [FILE|-]... [--live] [--envoy ADDR]... [-n NS] [--for DURATION]",
		Short: "Suggest a Sidecar for each namespace, from the clusters that its proxies used",
		Long: `Reads from each Envoy which clusters had a connection or a request since it started, and prints a Sidecar for each namespace that
imports those hosts, the names that lead to them, and the namespace's own services; what it saves; and the plan of it. Nothing is
applied.

The Envoys are those of all ready Pods (--live), through the API server as by kubectl port-forward; those at --envoy; or of FILE, which
has pairs of answers of an admin interface: /server_info, and then /clusters?format=json.

A host that was not used in that time is lost, also one that is called once a month. --for is how long every proxy of a namespace must
have run. Endpoints that have gone took their counters with them. Hosts that are unused, but that a VirtualService routes to, are named.`,
		Example: `  navarchctl suggest sidecar --live -n shop --for 24h
  navarchctl suggest sidecar --live --for 24h -o yaml >sidecars.yaml
  navarchctl suggest sidecar --config-dir deploy/fidelity/example/config deploy/fidelity/example/usage.json

  # From files.
  (curl -s localhost:15000/server_info; curl -s 'localhost:15000/clusters?format=json') >web.json
  navarchctl suggest sidecar web.json`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args) },
	}
	f := cmd.Flags()
	s.configured.bind(cmd)
	f.BoolVar(&s.live, "live", false, "Read the proxies of all ready Pods through the API server.")
	f.StringVarP(&s.namespace, "namespace", "n", "", "Only this namespace (default: all).")
	f.StringArrayVar(&s.envoys, "envoy", nil, "Address of an Envoy's admin interface; may be repeated.")
	f.DurationVar(&s.atLeast, "for", 0, "How long each proxy of a namespace must have run.")
	s.format.bind(cmd, text, "yaml", "json")
	return cmd
}

func (s *suggesting) run(cmd *cobra.Command, args []string) error {
	ctx, notes := cmd.Context(), cmd.ErrOrStderr()
	if !s.live && len(args)+len(s.envoys) == 0 {
		return errors.New("which proxies? --live, --envoy ADDR, or files of /server_info and /clusters?format=json")
	}
	events, err := s.objects(ctx, notes)
	if err != nil {
		return err
	}
	before, problems, err := s.snapshot(events)
	if err != nil {
		return err
	}
	s.notesProblems(cmd, problems)
	if err := s.readUsage(ctx, args, cmd.InOrStdin()); err != nil {
		return err
	}
	if len(s.usage) == 0 && len(s.report.Unread) == 0 {
		of := ""
		if s.namespace != "" {
			of = " of namespace " + show.Printable(s.namespace)
		}
		return errors.New("no sidecar" + of + " was read: Sidecars do not apply to gateways, which are left out")
	}
	if err := s.suggest(ctx, events, before); err != nil {
		return err
	}
	switch s.format {
	case "json":
		err = s.format.print(cmd.OutOrStdout(), &s.report)
	case "yaml":
		err = sidecarYAML(cmd.OutOrStdout(), s.report.Suggestions)
	default:
		err = s.text(cmd.OutOrStdout())
	}
	if err == nil && len(s.report.Unread) > 0 {
		for _, u := range s.report.Unread {
			fmt.Fprintln(notes, "warning: "+show.Printable(u.Dump+": "+u.Reason))
		}
		err = exitError{exitPartial, fmt.Sprintf("%d of the proxies were not read (exit code 4)", len(s.report.Unread))}
	}
	return err
}

// readUsage reads the usage of all proxies. Errors: a file cannot be opened, an address does not answer, the Pods
// cannot be listed, or ctx ends. If a stream of answers or a Pod cannot be read, readUsage records this in the report,
// and continues.
func (s *suggesting) readUsage(ctx context.Context, args []string, stdin io.Reader) error {
	for _, path := range args {
		in := stdin
		if path != files.Stdin {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			in = file
		}
		s.answers(path, in)
	}
	for _, address := range s.envoys {
		var both [][]byte
		for _, path := range []string{"/server_info", clustersPage} {
			raw, err := admin(address).get(ctx, path)
			if err != nil {
				return err
			}
			both = append(both, raw)
		}
		s.answers(address, bytes.NewReader(bytes.Join(both, []byte("\n"))))
	}
	if !s.live {
		return nil
	}
	in, pods, err := podsWithProxies(ctx, &s.in, s.namespace)
	if err != nil {
		return err
	}
	for _, pod := range slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return cluster.Unready(p) != "" }) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.pod(ctx, in.Pod(pod))
	}
	return nil
}

// pod reads the usage of a Pod's proxy, and closes the connections to the Pod. It records a failure in the report.
func (s *suggesting) pod(ctx context.Context, pod *cluster.Pod) {
	defer pod.Close()
	reading, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	var both []io.Reader
	for _, path := range []string{"/server_info", clustersPage} {
		body, err := adminOf(reading, pod, path)
		if err != nil {
			s.unread(pod.String(), err)
			return
		}
		defer body.Close()
		both = append(both, body, strings.NewReader("\n"))
	}
	s.answers(pod.String(), io.MultiReader(both...))
}

// unread records in the report that a source could not be read.
func (s *suggesting) unread(from string, err error) {
	s.report.Unread = append(s.report.Unread, compare.Unread{Dump: from, Reason: err.Error()})
}

// answers reads a stream of answers of Envoys, and adds the usage of the sidecars to s. It omits gateways, because
// Sidecars do not apply to them. It records a failure in the report.
func (s *suggesting) answers(from string, in io.Reader) {
	err := suggest.Answers(in, func(raw json.RawMessage, u suggest.Usage) error {
		node, err := s.parseNode("/server_info: node", raw)
		if err != nil {
			return err
		}
		if node.Kind != view.Sidecar || s.namespace != "" && node.Namespace != s.namespace {
			return nil
		}
		if wrong := validation.IsDNS1123Label(node.Namespace); len(wrong) > 0 {
			return fmt.Errorf("/server_info: node: namespace %.80q: %s", node.Namespace, wrong[0])
		}
		u.Namespace, u.Proxy = node.Namespace, node.Name+"."+node.Namespace
		s.usage, s.nodes = append(s.usage, u), append(s.nodes, node)
		return nil
	})
	if err != nil {
		s.unread(from, err)
	}
}

// suggest adds the suggestions to the report, and the plan (the effect on the proxies) of the Sidecars that save
// something.
func (s *suggesting) suggest(ctx context.Context, events []object.Event, before *mirror.Snapshot) error {
	resolved, _ := resolve.Snapshot(before)
	s.report.SchemaVersion = 1
	for _, one := range suggest.Sidecars(s.usage, configOf(resolved), s.atLeast) {
		entry := suggest.Entry{Suggestion: one}
		if one.Skipped == "" {
			entry.Sidecar = one.Object()
		}
		s.report.Suggestions = append(s.report.Suggestions, entry)
	}
	_, after, _, err := s.with(events)
	if err == nil {
		err = s.savings(resolved, after)
	}
	if err != nil {
		return err
	}
	objects, after, found, err := s.with(events)
	if err != nil || len(objects) == 0 {
		return err
	}
	base, err := baseOf(before, s.cluster, s.nodes)
	if err != nil {
		return err
	}
	made, err := preview.Of(ctx, base, over(before, after), nil)
	if err != nil {
		return err
	}
	made.Objects = (&change{put: objects}).proposals(before, after, found, nil) // nil: warnings do not refuse a Sidecar
	if !s.live {
		withoutShares(made)
	}
	s.report.Plan = made.Report(preview.Usual)
	return nil
}

// with adds the suggested Sidecars to the configuration. It returns the Sidecars, the snapshot of the result, and the
// problems of this snapshot. with fails if a Sidecar is not a valid object, or if the snapshot cannot be made.
func (s *suggesting) with(events []object.Event) (objects []*object.Object, after *mirror.Snapshot, found []object.Problem, err error) {
	for _, entry := range s.report.Suggestions {
		if entry.Sidecar == nil {
			continue
		}
		raw, err := json.Marshal(entry.Sidecar)
		if err != nil {
			return nil, nil, nil, err
		}
		one, err := objectsIn("the suggestion", raw)
		if err != nil {
			return nil, nil, nil, err
		}
		objects = append(objects, one...)
	}
	after, found, _, err = s.reviewed((&change{put: objects}).applied(events))
	return objects, after, found, err
}

// mostMeasured is the maximum number of proxies per namespace whose savings are measured.
const mostMeasured = 8

// savings measures the first mostMeasured proxies of each namespace with and without the suggested Sidecar. It records
// the numbers of the proxy with the largest saving, and drops a Sidecar that saves no bytes.
func (s *suggesting) savings(before, after *mirror.Snapshot) error {
	after, _ = resolve.Snapshot(after)
	with := plan.New(plan.Settings{Snapshot: after, Cluster: s.cluster})
	without := plan.New(plan.Settings{Snapshot: before, Cluster: s.cluster})
	for i := range s.report.Suggestions {
		entry := &s.report.Suggestions[i]
		if entry.Sidecar == nil {
			continue
		}
		tried := 0
		for at, u := range s.usage {
			if u.Namespace != entry.Namespace || tried == mostMeasured {
				continue
			}
			tried++
			now, bytesNow, err := bytesOf(without, s.nodes[at])
			if err != nil {
				return err
			}
			then, bytesThen, err := bytesOf(with, s.nodes[at])
			if err != nil {
				return err
			}
			if entry.BytesNow == 0 || bytesNow-bytesThen > entry.BytesNow-entry.BytesThen {
				entry.ClustersNow, entry.BytesNow, entry.ClustersThen, entry.BytesThen = now, bytesNow, then, bytesThen
			}
		}
		if entry.BytesThen >= entry.BytesNow {
			entry.Sidecar, entry.Skipped = nil, "it would save nothing"
			continue
		}
		entry.MemorySaved = suggest.Memory(entry.ClustersNow - entry.ClustersThen)
	}
	return nil
}

// bytesOf returns the number of a proxy's clusters in a plan, and the total bytes of the proxy's resources.
func bytesOf(planner *plan.Planner, node view.Node) (clusters int, size int64, err error) {
	proxy, err := join(planner, node)
	if err != nil {
		return 0, 0, err
	}
	defer planner.Leave(proxy)
	all := inspect.Of(proxy.Set())
	for _, resources := range all {
		for _, r := range resources {
			size += int64(len(r.Body()))
		}
	}
	return len(all[xds.Cluster]), size, nil
}

// text prints the summary. If a Sidecar is suggested, it also prints the Sidecars and the plan.
func (s *suggesting) text(w io.Writer) error {
	if err := show.Suggestions(w, &s.report); err != nil || s.report.Plan == nil {
		return err
	}
	fmt.Fprintln(w)
	if err := sidecarYAML(w, s.report.Suggestions); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nThe plan of these objects, for the proxies that were read:")
	return show.ChangeOf(s.report.Plan, false, false).Text(w)
}

// sidecarYAML prints the Sidecars as YAML documents. Comments name the unused hosts to which a VirtualService routes.
func sidecarYAML(w io.Writer, all []suggest.Entry) error {
	for _, e := range all {
		if e.Sidecar == nil {
			continue
		}
		raw, err := yaml.Marshal(e.Sidecar)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, "---")
		for _, host := range e.Unused {
			fmt.Fprintln(w, "# unused, but routed to: "+show.Printable(host))
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}
