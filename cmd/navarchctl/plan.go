package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/files"
)

// Exit codes of plan: 0 nothing changes, 1 error.
const (
	exitChanges = 2 // something changes
	exitRisk    = 3 // a risk at or above --fail-on
	exitPartial = 4 // only a part of the fleet answered
)

// planning has the flags of plan.
type planning struct {
	at      controlPlane
	from    offline
	file    string
	remove  bool
	proxies []string // files of nodes
	nodes   string   // a file of several nodes
	failOn  string
	raw     bool
	format  output
}

func planCommand() *cobra.Command {
	var p planning
	cmd := &cobra.Command{
		Use:   "plan -f FILE|DIR|- [--delete] [--config-dir DIR --proxy NODE.json...|--nodes FILE]",
		Short: "Print which proxies would get something else if objects were applied",
		Long: `Compares the configuration of the proxies now with the configuration that they would get if the objects in FILE were
applied or, with --delete, deleted. Nothing is applied. The replicas of the control plane plan for their own proxies. With --config-dir
no server is asked: the folder is the configuration now, and the proxies are Envoy core.v3 Nodes (--proxy, or --nodes for a file of
many YAML documents).

Of a running mesh, objects of Istio alone can be planned. Private keys are not opened: a proxy is sent a changed Secret later.

Exit codes: 0 nothing changes, 1 error or a refused object, 2 something changes, 3 a risk at or above --fail-on, 4 only some replicas
answered.`,
		Example: `  # What a changed route does, before it is applied.
  navarchctl plan -f deploy/demo/shop/reviews-routes.yaml --delete --config-dir deploy/demo/shop --proxy deploy/demo/node.json

  # The same for the running mesh, as JSON.
  navarchctl plan -f deploy/demo/shop/reviews-routes.yaml --delete -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	f := cmd.Flags()
	p.at.bind(f)
	f.StringVarP(&p.file, "filename", "f", "", "File or folder of the objects; - is the standard input.")
	f.BoolVar(&p.remove, "delete", false, "The objects are deleted.")
	f.StringVar(&p.from.configDir, "config-dir", "", "Folder of Istio and Kubernetes YAML that is the configuration now; without a server.")
	f.StringArrayVar(&p.proxies, "proxy", nil, "With --config-dir, a file of an Envoy core.v3 Node; may be repeated.")
	f.StringVar(&p.nodes, "nodes", "", "With --config-dir, a file of Envoy core.v3 Nodes as YAML documents.")
	f.StringVar(&p.from.cluster, "cluster-id", "Kubernetes", "With --config-dir, the name of the cluster that the configuration is of.")
	f.StringVar(&p.from.domain, "domain", "cluster.local", "With --config-dir, the DNS domain of the cluster.")
	f.BoolVar(&p.raw, "raw", false, "List every resource that differs.")
	f.Var(&choice{&p.failOn, "level", []string{"high", "medium", "any"}}, "fail-on",
		"Exit with 3 for a risk of this level or above: high, medium, any.")
	completes(cmd, "fail-on", "high", "medium", "any")
	p.format.bind(cmd, "text", "json", "markdown")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(err) // the flag was not bound
	}
	return cmd
}

// run plans and prints. The error has the exit code.
func (p *planning) run(cmd *cobra.Command) error {
	defer p.at.close()
	objects, err := p.objects(cmd.InOrStdin())
	if err != nil {
		return err
	}
	r, err := p.report(cmd.Context(), objects, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	change := show.ChangeOf(r, p.raw)
	switch p.format {
	case "json":
		err = p.format.print(cmd.OutOrStdout(), r)
	case "markdown":
		err = change.Markdown(cmd.OutOrStdout())
	default:
		warnings(cmd.ErrOrStderr(), r)
		err = change.Text(cmd.OutOrStdout())
	}
	if err != nil {
		return err
	}
	return outcomeOf(r, p.failOn)
}

// warnings prints what is said of objects that are not refused.
func warnings(w io.Writer, r *preview.Report) {
	for _, o := range r.Objects {
		for _, one := range o.Problems {
			if o.Act != preview.Refused {
				fmt.Fprintln(w, show.Printable(fmt.Sprintf("%s: %s: %s", one.Severity, strings.TrimSpace(o.Object+" "+one.Field), one.Message)))
			}
		}
	}
}

// report asks the replicas, or plans offline.
func (p *planning) report(ctx context.Context, objects []*object.Object, warnings io.Writer) (*preview.Report, error) {
	if p.from.configDir == "" {
		if len(p.proxies) > 0 || p.nodes != "" {
			return nil, errors.New("--proxy and --nodes go with --config-dir: the replicas know their own proxies")
		}
		return p.live(ctx, objects, warnings)
	}
	if p.at.stated() {
		return nil, errors.New("--config-dir goes without --server, --kubeconfig and --context")
	}
	return p.offline(ctx, objects, warnings)
}

// objects reads the objects of -f. The error names the first object that cannot be read, or that is named twice.
func (p *planning) objects(stdin io.Reader) ([]*object.Object, error) {
	events, err := readObjects(p.file, stdin)
	if err != nil {
		return nil, fmt.Errorf("-f: %w", err)
	}
	var all []*object.Object
	seen := map[object.ID]string{}
	for _, e := range events {
		switch {
		case e.Op == object.Broken:
			return nil, fmt.Errorf("-f: %s: %s", e.Location, e.Problem)
		case e.Op != object.Put:
			continue
		case seen[e.ID] != "":
			return nil, fmt.Errorf("-f: %s: %v is in %s too", e.Object.Location, e.ID, seen[e.ID])
		}
		seen[e.ID] = e.Object.Location
		all = append(all, e.Object)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("-f: %s has no objects", p.file)
	}
	return all, nil
}

// readObjects reads a folder, a file, or the standard input.
func readObjects(path string, stdin io.Reader) (events []object.Event, err error) {
	if path == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, err
		}
		events, _ = files.Parse("standard input", data)
		return events, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		events, _, err = files.Read(path, "", func(string) {})
		return events, err
	}
	data, err := os.ReadFile(path)
	events, _ = files.Parse(path, data)
	return events, err
}

// outcomeOf returns the error with the exit code of a report; nil if nothing changes.
func outcomeOf(r *preview.Report, failOn string) error {
	n, _, _ := r.Count()
	from := map[string]meaning.Level{"high": meaning.High, "medium": meaning.Medium, "any": meaning.Medium}[failOn]
	switch {
	case r.Refused():
		return errors.New("an object is refused, so nothing is planned")
	case from > 0 && r.Worst() >= from:
		return exitError{exitRisk, "there is a risk of level " + r.Worst().String() + " (--fail-on)"}
	case len(r.Partial) > 0:
		return exitError{exitPartial, "only a part of the fleet answered"}
	case n > 0:
		return exitError{exitChanges, "proxies would get something else (exit code 2)"}
	}
	return nil
}
