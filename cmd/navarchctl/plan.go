package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/analyze"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/object"
)

// planning has the flags of plan. Zero values mean flags that are not set.
type planning struct {
	at      controlPlane
	from    offline
	files   []string
	remove  bool
	prune   string
	proxies []string // files with one Envoy node each
	nodes   string   // file with several Envoy nodes
	failOn  string
	raw     bool
	scope   string // --scope
	within  preview.Scope
	named   bool   // --proxies
	out     string // --out; empty: the plan is not saved
	envoy   string // path of the Envoy program that validates; empty: no validation
	format  output
}

func planCommand() *cobra.Command {
	var p planning
	cmd := &cobra.Command{
		Use:   "plan -f FILE|DIR|- [--delete|--prune SELECTOR] [--config-dir DIR --proxy NODE.json...|--nodes FILE]",
		Short: "Print which proxies would get a different configuration if objects were applied",
		Long: `Compares the configuration of the proxies now with the configuration that they would get if the objects in FILE were
applied or, with --delete, deleted. With --prune, the plan also deletes all objects that the selector selects and that are not in FILE:
in a running mesh objects of Istio's kinds, read from the API server; with --config-dir objects of any kind.

Nothing is applied. With --out the plan is saved, and navarchctl apply --plan FILE applies exactly its objects, unless one of them, or an
object behind what changes, has changed since. The replicas of the control plane plan for their own proxies. With --config-dir no server
is asked: the folder is the configuration now, and the proxies are Envoy core.v3 Nodes (--proxy, or --nodes for a file of many YAML
documents).

For a running mesh, only objects of Istio's kinds can be planned. Private keys are not decrypted for the
plan; after a change, proxies receive a Secret once its key is decrypted.`,
		Example: `  # What a changed route does, before it is applied.
  navarchctl plan -f deploy/demo/shop/reviews-routes.yaml --delete --config-dir deploy/demo/shop --proxy deploy/demo/node.json

  # The file has all that is to be left with a label: which proxies notice if the rest goes?
  navarchctl plan -f deploy/demo/shop/web.yaml --prune 'app in (web, reviews)' --config-dir deploy/demo/shop --proxy deploy/demo/node.json

  # Of one namespace, with the name of every affected proxy.
  navarchctl plan -f deploy/demo/shop/reviews-routes.yaml --delete --scope 'namespace shop' --proxies

  # For a code scanner, in a pipeline.
  navarchctl plan -f deploy/demo/shop --config-dir deploy/demo/shop --proxy deploy/demo/node.json -o sarif >plan.sarif

  # Save the plan, to apply exactly this later (navarchctl apply --plan plan.json).
  navarchctl plan -f deploy/demo/shop/reviews-routes.yaml --delete --out plan.json

  # The same for the running mesh, as JSON.
  navarchctl plan -f deploy/demo/shop/reviews-routes.yaml --delete -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	p.bind(cmd)
	return cmd
}

// bind adds the flags of plan.
func (p *planning) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	p.at.bind(f)
	f.StringArrayVarP(&p.files, "filename", "f", nil, "File or folder of the objects; - is the standard input. May be repeated.")
	f.BoolVar(&p.remove, "delete", false, "The objects are deleted.")
	f.StringVar(&p.prune, "prune", "", "Objects whose labels match this selector are deleted, except those of -f: as app=web,tier!=cache.")
	cmd.MarkFlagsMutuallyExclusive("delete", "prune")
	f.StringVar(&p.from.configDir, "config-dir", "", "Folder of Istio and Kubernetes YAML that is the configuration now; without a server.")
	f.StringArrayVar(&p.proxies, "proxy", nil, "With --config-dir, a file of an Envoy core.v3 Node; may be repeated.")
	f.StringVar(&p.nodes, "nodes", "", "With --config-dir, a file of Envoy core.v3 Nodes as YAML documents.")
	f.StringVar(&p.from.cluster, "cluster-id", "Kubernetes", "With --config-dir: name of the cluster to which the configuration belongs.")
	f.StringVar(&p.from.domain, "domain", "cluster.local", "With --config-dir, the DNS domain of the cluster.")
	f.StringVar(&p.envoy, "envoy", "", "Path of an Envoy that validates the configuration of the affected proxies, as risk NP602.")
	f.StringVar(&p.scope, "scope", "",
		"Proxies that the plan is about: mesh (the default), \"namespace NAME\" or \"proxy NAME.NAMESPACE\".")
	f.BoolVar(&p.named, "proxies", false, "Name every affected proxy.")
	f.StringVar(&p.out, "out", "", "File to save the plan of a running mesh to, for navarchctl apply --plan.")
	f.BoolVar(&p.raw, "raw", false, "List every resource that differs.")
	f.Var(&choice{&p.failOn, "level", []string{"high", "medium", "any"}}, "fail-on",
		"Exit with 3 for a risk of this level or above: high, medium, any.")
	completes(cmd, "fail-on", "high", "medium", "any")
	p.format.bind(cmd, text, "json", "yaml", nameFormat, "markdown", "sarif")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(err) // the flag was not bound
	}
}

// run plans and prints the report. An exitError means that the report was printed; it contains the exit code for the
// report's outcome.
func (p *planning) run(cmd *cobra.Command) error {
	defer p.at.close()
	if cmd.Flags().Changed("prune") && strings.TrimSpace(p.prune) == "" {
		return errors.New("--prune: " + errAll.Error())
	}
	var err error
	if p.within, err = preview.ParseScope(p.scope); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if p.out != "" && p.from.configDir != "" {
		return errors.New("--out saves a plan for navarchctl apply, which asks the running mesh again: it goes without --config-dir")
	}
	c, err := p.read(cmd.InOrStdin())
	if err != nil {
		return err
	}
	started := time.Now()
	r, err := p.report(cmd.Context(), &c, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	r.Seconds = time.Since(started).Round(time.Millisecond).Seconds()
	if r.Proxies == 0 && !r.Refused() && p.within != (preview.Scope{}) {
		return fmt.Errorf("--scope %s: no such proxy is connected (navarchctl proxy-status lists them)", p.scope)
	}
	if p.envoy != "" {
		if err := validated(cmd.Context(), p.envoy, r, cmd.ErrOrStderr()); err != nil {
			return err
		}
	}
	if p.out != "" && !r.Refused() {
		if err := save(p.out, p.scope, c, r); err != nil {
			return err
		}
	}
	if err := p.print(cmd, r, c); err != nil {
		return err
	}
	return outcomeOf(r, p.failOn)
}

// print prints a report in the format of -o.
func (p *planning) print(cmd *cobra.Command, r *preview.Report, c change) error {
	w, shown := cmd.OutOrStdout(), show.ChangeOf(r, p.raw, p.named)
	switch p.format {
	case "markdown":
		return shown.Markdown(w)
	case "sarif":
		return analyze.WriteSARIFOf(w, "navarchctl plan", riskTitle, planFindings(r, c))
	}
	result := rows{value: r, table: func(w io.Writer, _ bool) error {
		warnings(cmd.ErrOrStderr(), r)
		return shown.Text(w)
	}}
	for _, o := range r.Objects {
		if o.Act != preview.Unchanged {
			result.names = append(result.names, objectName(o.Object))
		}
	}
	var from []string
	for _, file := range p.files {
		from = append(from, "-f", file)
	}
	switch {
	case r.Refused() || p.from.configDir != "":
		result.next = nextIs("what is wrong with the objects by themselves", append([]string{"analyze"}, from...)...)
	case p.out != "":
		result.next = nextIs("apply what was planned, unless something has changed since", "apply", "--plan", p.out)
	case !p.remove && p.prune == "" && len(result.names) > 0 && r.Worst() < meaning.High && p.at.cluster.Given():
		result.next = nextIs("apply them, until all proxies have them", append(append([]string{"apply"}, from...), "--wait")...)
	}
	return p.format.write(cmd, result)
}

// warnings prints the problems of the objects that are not refused.
func warnings(w io.Writer, r *preview.Report) {
	for _, o := range r.Objects {
		if o.Act == preview.Refused {
			continue
		}
		for _, one := range o.Problems {
			fmt.Fprintln(w, show.Printable(fmt.Sprintf("%s: %s: %s", one.Severity, strings.TrimSpace(o.Object+" "+one.Field), one.Message)))
		}
	}
}

// report requests the plan from the replicas or, with --config-dir, plans in this process. The error also reports flags
// that exclude each other. With --prune, the objects to delete are added to c.
func (p *planning) report(ctx context.Context, c *change, warnings io.Writer) (*preview.Report, error) {
	if p.from.configDir == "" {
		if len(p.proxies) > 0 || p.nodes != "" {
			return nil, errors.New("--proxy and --nodes go with --config-dir: the replicas know their own proxies")
		}
		return p.live(ctx, c, warnings)
	}
	if p.at.stated() {
		return nil, errors.New("--config-dir goes without --server, --kubeconfig and --context")
	}
	return p.offline(ctx, c, warnings)
}

// change has the objects of a plan: those that are applied, and those that are deleted.
type change struct {
	put, removed []*object.Object
	pruned       bool // removed was computed by --prune
}

// read reads the objects of the flag -f. With --delete they are objects to delete, without it objects to apply. Errors
// are those of readObjects. It is also an error if an object occurs twice; the error names the first such object.
func (p *planning) read(stdin io.Reader) (c change, err error) {
	all, err := readObjects(p.files, stdin)
	seen := map[object.ID]string{}
	for _, o := range all {
		if seen[o.ID] != "" {
			return c, fmt.Errorf("--filename: %s: %v is in %s too", o.Location, o.ID, seen[o.ID])
		}
		seen[o.ID] = o.Location
	}
	if p.remove {
		return change{removed: all}, err
	}
	return change{put: all}, err
}

// outcomeOf returns the outcome of a report as an error. It returns the first of these outcomes that applies: a refused
// object, a risk at or above the level failOn (empty: risks are ignored), a missing replica, a changed proxy. Except
// for a refused object, the error has an exit code. If no outcome applies, outcomeOf returns nil.
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
		return exitError{exitChanges, "the plan is complete: proxies would get a different configuration (exit code 2)"}
	}
	return nil
}
