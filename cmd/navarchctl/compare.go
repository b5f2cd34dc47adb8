package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/cmd/navarchctl/compare"
	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/source/files"
)

// comparing contains the flags of the command compare, and the report that it makes.
type comparing struct {
	configured
	live      bool
	namespace string
	all       bool // print every difference
	format    output

	planner *plan.Planner // plans each proxy from the configuration
	report  compare.Report
}

func compareCommand() *cobra.Command {
	c := &comparing{}
	cmd := &cobra.Command{
		Use:   "compare [DUMP|DIR|-]... | compare --live [NAME.NAMESPACE|KIND/NAME]...",
		Short: "Compare what proxies got from istiod with what Navarch would serve them",
		Long: `Reads the configuration of proxies that run under istiod, renders what Navarch would serve the same proxies, and says for each
workload whether both are equal, differ as deploy/docs/fidelity.md argues (with the row), or are different (with the resource, the field,
both values, and the objects that made Navarch's). Nothing is installed, and nothing is written.

DUMP is the output of istioctl proxy-config all POD -o json, or of Envoy's /config_dump?include_eds; a file may have several. DIR has
such files, *.json. With --live they are read from the Pods through the API server, as by kubectl port-forward: of one ready Pod of each
workload, or of those that are named. The configuration is read from the API server, or from a folder (--config-dir).

Secrets and configurations of extensions are not compared: the agent has private keys, and rewrites where modules are fetched from.
Settings of the control plane that decide about proxies, such as PILOT_SCOPE_GATEWAY_TO_NAMESPACE, are read from the environment.`,
		Example: `  # Every workload of a cluster with istiod, or those of one namespace.
  navarchctl compare --live
  navarchctl compare --live -n shop

  # From files.
  istioctl proxy-config all web-0.shop -o json >web.json
  navarchctl compare web.json
  navarchctl compare --config-dir deploy/fidelity/example/config deploy/fidelity/example/dump.json`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args) },
	}
	f := cmd.Flags()
	c.configured.bind(cmd)
	f.BoolVar(&c.live, "live", false, "Read the proxies through the API server.")
	f.StringVarP(&c.namespace, "namespace", "n", "", "With --live, only workloads of this namespace (default: all).")
	f.BoolVar(&c.all, "all", false, "Print every difference, not the first of each workload alone.")
	c.format.bind(cmd, text, "json", "yaml")
	return cmd
}

func (c *comparing) run(cmd *cobra.Command, args []string) error {
	ctx, notes := cmd.Context(), cmd.ErrOrStderr()
	switch {
	case !c.live && len(args) == 0:
		return errors.New("which proxies? --live, or files of their dumps (istioctl proxy-config all POD -o json)")
	case !c.live && c.namespace != "":
		return errors.New("--namespace goes with --live")
	}
	events, err := c.objects(ctx, notes)
	if err != nil {
		return err
	}
	snapshot, problems, err := c.snapshot(events)
	if err != nil {
		return err
	}
	c.notesProblems(cmd, problems)
	snapshot, _ = resolve.Snapshot(snapshot)
	c.planner = plan.New(plan.Settings{Snapshot: snapshot, Cluster: c.cluster})
	c.report.SchemaVersion = 1
	if c.live {
		err = c.pods(ctx, args)
	} else {
		err = c.files(ctx, args, cmd.InOrStdin())
	}
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	c.report.Summarise()
	if c.format == text {
		err = show.Comparison(cmd.OutOrStdout(), &c.report, c.all)
	} else {
		err = c.format.print(cmd.OutOrStdout(), &c.report)
	}
	if err != nil {
		return err
	}
	if c.report.Summary.Different > 0 {
		goesOn(cmd, c.format, "what is wrong with the configuration: objects with errors are not served", c.analysis()...)
	}
	return comparedOutcome(&c.report)
}

// comparedOutcome returns nil if all proxies of a report were compared and none is different. For any other report it
// returns an error with the exit code of the command.
func comparedOutcome(r *compare.Report) error {
	switch {
	case len(r.Unread) > 0:
		return exitError{exitPartial, fmt.Sprintf("%d of the proxies were not compared (exit code 4)", len(r.Unread))}
	case r.Summary.Different > 0:
		return exitError{exitDiffers, fmt.Sprintf("different: %d of %d workloads (exit code 2)", r.Summary.Different, len(r.Workloads))}
	}
	return nil
}

// files compares the dumps in the given files, and in the files *.json of given folders. It returns an error if a file
// or folder cannot be opened, if a folder has no such file, or for a fault of this program.
func (c *comparing) files(ctx context.Context, args []string, stdin io.Reader) error {
	for _, arg := range args {
		paths := []string{arg}
		if info, err := os.Stat(arg); arg != files.Stdin && err != nil {
			return err
		} else if arg != files.Stdin && info.IsDir() {
			if paths, err = filepath.Glob(filepath.Join(arg, "*.json")); err != nil {
				return err
			}
			if len(paths) == 0 {
				return fmt.Errorf("%s has no files *.json", arg)
			}
		}
		for _, path := range paths {
			if err := c.file(ctx, path, stdin); err != nil {
				return err
			}
		}
	}
	return nil
}

// file compares the dumps of one file, or of the standard input.
func (c *comparing) file(ctx context.Context, path string, stdin io.Reader) error {
	if path == files.Stdin {
		return c.dumps(ctx, "standard input", stdin)
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	return c.dumps(ctx, path, in)
}

// dumps compares the dumps in a stream, one after the other. At a dump that cannot be read, dumps adds the reason to
// the report, and ignores the rest of the stream. A returned error is a fault of this program, for example of the
// planner.
func (c *comparing) dumps(ctx context.Context, from string, in io.Reader) error {
	stream := dump.NewStream(in)
	for n := 0; ; n++ {
		err := c.dump(ctx, from, stream)
		var fault faultError
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case errors.As(err, &fault):
			return fault.error
		case errors.Is(err, io.EOF):
			err = errors.New("it is empty")
			fallthrough
		default:
			c.report.Unread = append(c.report.Unread, compare.Unread{Dump: from, Reason: err.Error()})
			return nil
		}
	}
}

// faultError is an error of this program, as opposed to an invalid dump.
type faultError struct{ error }

// dump compares the next dump of a stream, and adds the result to the report. The error is io.EOF after the last dump,
// a faultError, or the reason why the dump cannot be read.
func (c *comparing) dump(ctx context.Context, from string, stream *dump.Stream) error {
	one, w := ours{planner: c.planner}, compare.Workload{Dump: from}
	defer func() { one.leave() }() // removes the proxy that the function Node added to the planner
	var comparison *compare.Comparison
	err := stream.Next(dump.Visitor{
		Node: func(raw json.RawMessage) error {
			if comparison != nil {
				return errors.New("it has more than one node: a dump is of one proxy")
			}
			node, err := c.parseNode("the bootstrap's node", raw)
			if err != nil {
				return err
			}
			if one.proxy, err = join(c.planner, node); err != nil {
				return faultError{err}
			}
			w.Proxy, w.Workload = node.Name+"."+node.Namespace, workloadName(node.Namespace, node.Name, raw)
			comparison = compare.New(one, strings.HasPrefix(node.ID, "router~"), c.report.Room())
			return nil
		},
		Section: func(t xds.Type) error {
			if comparison == nil {
				return errNoBootstrap
			}
			comparison.Section(t)
			return nil
		},
		Resource: func(r dump.Resource) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.Where == "draining" {
				return nil
			}
			if r.Failure != nil {
				comparison.Note("%s %s: the proxy refused istiod's newest version: %s", r.Type.Noun(), r.Name, r.Failure.Details)
			}
			if r.Raw == nil {
				return nil
			}
			if err := comparison.Add(r.Type, r.Name, r.Raw); err != nil {
				return faultError{err}
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	if comparison == nil {
		return errNoBootstrap
	}
	result, err := comparison.Result()
	if err != nil {
		return faultError{err}
	}
	w.Result = *result
	c.report.Workloads = append(c.report.Workloads, w)
	return nil
}

// errNoBootstrap means that the bootstrap is missing in the dump, or comes after other sections.
var errNoBootstrap = errors.New("the dump does not begin with the section of the bootstrap, which names the proxy: " +
	"use istioctl proxy-config all POD -o json, or /config_dump?include_eds of Envoy")

// workloadName returns namespace/name of the workload that a node states. If the node states no workload, it returns
// namespace/name of the Pod.
func workloadName(namespace, pod string, node json.RawMessage) string {
	var stated struct {
		Metadata struct {
			Workload string `json:"WORKLOAD_NAME"`
		} `json:"metadata"`
	}
	if json.Unmarshal(node, &stated) != nil || stated.Metadata.Workload == "" {
		return namespace + "/" + pod
	}
	return namespace + "/" + stated.Metadata.Workload
}

// ours contains the planned resources of one proxy, that is, the resources that Navarch would serve.
type ours struct {
	planner *plan.Planner
	proxy   *plan.Handle
}

// leave removes the proxy from the planner.
func (o ours) leave() {
	if o.proxy != nil {
		o.planner.Leave(o.proxy)
	}
}

// Get implements compare.Ours. It returns nil without an error for a resource that was not planned.
func (o ours) Get(t xds.Type, name string) (proto.Message, error) {
	r := o.proxy.Set().Types[t].Get(name)
	if r == nil {
		return nil, nil
	}
	return inspect.Message(r)
}

// Names implements compare.Ours. The result is sorted. It is nil if the proxy has no resource of the type.
func (o ours) Names(t xds.Type) (names []string) {
	for _, r := range o.proxy.Set().Types[t].Sorted() {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// Objects implements compare.Ours. The result has the likeliest cause first.
func (o ours) Objects(t xds.Type, name, value string) (objects []string) {
	for _, at := range inspect.Blame(o.planner.Explain(o.proxy, t, name), value) {
		objects = append(objects, at.String())
	}
	return objects
}
