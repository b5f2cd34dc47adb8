package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"navarch.io/navarch/cmd/navarchctl/analyze"
	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

// analysis contains the options of "navarchctl analyze".
type analysis struct {
	offline   // cluster name and DNS domain of the configuration
	in        cluster.Flags
	paths     []string
	live      bool   // --live
	namespace string // empty: all
	only      bool   // --new
	suppress  []string
	fail      string // severity of --fail-threshold
	least     string // severity of --output-threshold
	list      bool
	server    string
	days      int    // --expires-within
	bytes     string // --proxy-bytes: a quantity; empty: no budget
	format    output
}

// always is the value of a flag that istioctl can switch off and this command cannot. It accepts true only.
type always struct{}

// String returns the value: "true".
func (always) String() string { return "true" }

// Type returns the type of the value for the help text.
func (always) Type() string { return "bool" }

// Set accepts the words that strconv.ParseBool decodes as true. Any other value is an error.
func (always) Set(v string) error {
	if is, err := strconv.ParseBool(v); err != nil || !is {
		return errors.New("it is always true")
	}
	return nil
}

func analyzeCommand() *cobra.Command {
	a := &analysis{}
	cmd := &cobra.Command{
		Use:     "analyze [FILE|DIR|-]...",
		Aliases: []string{"analyse"},
		Short:   "Find the problems of configuration, in files or in a cluster, with istioctl's codes",
		Long: `Analyzes files (-f, or arguments), a cluster (--live; without files that is the default), or both: then an object of a file
replaces the one of the cluster, and --new reports the findings that the files add. Folders are read with all folders below. Workloads in
files, such as Deployments, stand for their Pods, and proxies are planned as a replica would do it. The cluster is read with the rights
of the kubeconfig's user. The control plane is asked for what it alone knows, such as configuration that proxies refuse; without one,
these codes are left out.
With --snapshot, the problems and records of a report are analyzed; a note names the codes that a report cannot answer.

Codes are those of istioctl analyze, and NAV1001 and following; --list prints them. A finding is suppressed by --suppress, or by
the annotation galley.istio.io/analyze-suppress of its object: codes separated by commas, or *. It is an error if the files have no
object, or if no object is of the namespace of --namespace.
`,
		Example: `  # The cluster, and only namespace shop.
  navarchctl analyze
  navarchctl analyze -n shop

  # Certificates that end within 90 days, too.
  navarchctl analyze --expires-within 90

  # Files alone, as in a pipeline.
  navarchctl analyze -f deploy/demo/shop
  navarchctl analyze -f deploy/demo/shop -o sarif >findings.sarif

  # What a change would add to the cluster's findings.
  navarchctl analyze -f change.yaml --live --new --fail-threshold warning

  # A report of bug-report or snapshot save.
  navarchctl bug-report --out report.tgz
  navarchctl --snapshot report.tgz analyze

  # Sidecars that get more than 10 MiB of configuration.
  navarchctl analyze --proxy-bytes 10Mi

  navarchctl analyze --suppress 'IST0102=Namespace *' --suppress 'NAV1001=VirtualService *.shop'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.paths = append(a.paths, args...)
			return a.run(cmd)
		},
	}
	a.bind(cmd)
	return cmd
}

func (a *analysis) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	a.in.Bind(f)
	f.StringArrayVarP(&a.paths, "file", "f", nil, "File or folder of YAML or JSON, or - for standard input; may be repeated.")
	f.BoolVarP(&a.live, "live", "k", false, "Read the cluster, too, if files are given.")
	f.StringVarP(&a.namespace, "namespace", "n", "",
		"Only findings about this namespace and its objects (default: all). "+
			"Objects of files that state no namespace are in it.")
	allNamespaces(cmd)
	f.BoolVar(&a.only, "new", false, "Only findings that the files add to those of the cluster.")
	f.StringArrayVarP(&a.suppress, "suppress", "S", nil,
		"CODE=KIND NAME.NAMESPACE: do not report this; * stands for any characters. May be repeated.")
	a.fail, a.least = string(problem.Error), string(problem.Info)
	severities := []string{string(problem.Error), string(problem.Warning), string(problem.Info)}
	f.Var(&choice{&a.fail, "severity", severities}, "fail-threshold",
		"Exit with 2 if a finding has this severity or a worse one: error, warning, info.")
	f.Var(&choice{&a.least, "severity", severities}, "output-threshold",
		"Print findings of this severity or a worse one: error, warning, info.")
	f.StringVar(&a.server, "server", "", "Address of navarchd's debug pages, with --live, for codes that only the control plane knows "+
		"(default: the ready replicas that the kubeconfig leads to).")
	f.IntVar(&a.days, "expires-within", 30, "Report certificates and authorities that end within so many days.")
	f.StringVar(&a.bytes, "proxy-bytes", "",
		"Plan the sidecars of each namespace, and report those that get more configuration than this, as in 10Mi.")
	f.BoolVarP(&a.list, "list", "L", false, "Print the codes with their names and severities, and end.")
	f.StringVar(&a.cluster, "cluster-id", "Kubernetes", "Name of the cluster to which the configuration belongs.")
	f.StringVar(&a.domain, "domain", "cluster.local", "DNS domain of the cluster.")
	f.VarP(always{}, "recursive", "R", "Folders are always read with the folders below.")
	f.Lookup("recursive").NoOptDefVal = "true"
	completes(cmd, "fail-threshold", severities...)
	completes(cmd, "output-threshold", severities...)
	a.format.bind(cmd, text, "json", "yaml", nameFormat, "sarif", "junit")
}

func (a *analysis) run(cmd *cobra.Command) error {
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(400)) // saves time and costs a few hundred MB, until the command ends
	}
	if a.list {
		return listCodes(cmd.OutOrStdout())
	}
	switch {
	case a.only && len(a.paths) == 0:
		return errors.New("--new is for files: name them with -f")
	case a.server != "" && (a.only || !a.live && len(a.paths) > 0):
		return errors.New("--server is for the cluster: state --live, and not --new")
	case a.days < 1 || a.days > 3650:
		return fmt.Errorf("--expires-within: %d; want 1 to 3650 days", a.days)
	}
	var suppressions []analyze.Suppression
	for _, stated := range a.suppress {
		s, err := analyze.ParseSuppression(stated)
		if err != nil {
			return fmt.Errorf("--suppress: %w", err)
		}
		suppressions = append(suppressions, s)
	}
	found, err := a.findings(cmd)
	if err != nil {
		return err
	}
	found = analyze.Suppressed(found, suppressions)
	if a.namespace != "" {
		found = analyze.Of(found, a.namespace)
	}
	failing := 0
	for _, f := range found {
		if analyze.AtLeast(f.Severity, problem.Severity(a.fail)) {
			failing++
		}
	}
	found = slices.DeleteFunc(found, func(f analyze.Finding) bool { return !analyze.AtLeast(f.Severity, problem.Severity(a.least)) })
	if err := a.print(cmd, found); err != nil {
		return err
	}
	switch {
	case failing == 1:
		return exitError{exitFound, "1 finding reaches --fail-threshold " + a.fail}
	case failing > 1:
		return exitError{exitFound, fmt.Sprintf("%d findings reach --fail-threshold %s", failing, a.fail)}
	}
	return nil
}

// findings analyses the files and the cluster, and returns all findings with the lines of their objects in files. With
// --snapshot it analyses the report.
func (a *analysis) findings(cmd *cobra.Command) ([]analyze.Finding, error) {
	if openedOf(cmd.Context()) != nil {
		return a.ofReport(cmd)
	}
	c, err := a.config(time.Now())
	if err != nil {
		return nil, err
	}
	notes := cmd.ErrOrStderr()
	var stdin []byte
	var stated analyze.Input
	if len(a.paths) > 0 {
		if slices.Contains(a.paths, files.Stdin) {
			if stdin, err = io.ReadAll(cmd.InOrStdin()); err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
		}
		once := files.Once{Cluster: a.cluster, Namespace: a.namespace, Skipped: func(location string) {
			fmt.Fprintln(notes, "note: "+show.Printable(location)+" is no object of Kubernetes, and is skipped")
		}}
		stated.Events, stated.Problems, err = files.ReadPaths(a.paths, bytes.NewReader(stdin), once)
		if err != nil {
			return nil, err
		}
		if len(stated.Problems) == 0 && !slices.ContainsFunc(stated.Events, func(e object.Event) bool { return e.Op == object.Put }) {
			return nil, fmt.Errorf("no object in %s: nothing was analysed", show.Printable(strings.Join(a.paths, ", ")))
		}
	}
	found, err := a.analyze(cmd.Context(), stated, c, notes)
	if err != nil {
		return nil, err
	}
	analyze.NewLines(func(path string) ([]byte, error) {
		if path == files.Stdin {
			return stdin, nil
		}
		return os.ReadFile(path)
	}).Fill(found)
	return found, nil
}

// config returns the settings of the analysis at a time, from flags and environment.
func (a *analysis) config(now time.Time) (c analyze.Config, err error) {
	settings, err := a.settings()
	if err != nil {
		return c, err
	}
	settings.Revision, settings.SystemNamespace = a.in.Revision, a.in.Namespace
	c = analyze.Config{Normal: settings, SystemNamespace: a.in.Namespace, Now: now, Soon: time.Duration(a.days) * 24 * time.Hour}
	if c.Routers, err = routerSettings(); err != nil {
		return c, err
	}
	if a.bytes != "" {
		budget, err := resource.ParseQuantity(a.bytes)
		if err != nil || budget.Value() <= 0 {
			return c, fmt.Errorf("--proxy-bytes: %.40q is not a number of bytes, such as 10Mi", a.bytes)
		}
		c.ProxyBytes = budget.Value()
	}
	return c, nil
}

// analyze returns the findings about the files, about the cluster, or about the cluster after objects of the cluster
// are replaced by those of the files. With --new it returns only the findings that the files add. If the control plane
// does not answer, the result is an error with --server, and without --server a note.
func (a *analysis) analyze(ctx context.Context, stated analyze.Input, c analyze.Config, notes io.Writer) ([]analyze.Finding, error) {
	if !a.live && !a.only && len(a.paths) > 0 {
		return analyze.Run(stated, c), a.exists(stated)
	}
	of, err := a.in.Open()
	if err != nil && len(a.paths) == 0 {
		return nil, fmt.Errorf("%w; -f FILE or -f DIR analyses files without a cluster", err)
	} else if err != nil {
		return nil, err
	}
	now, err := analyze.Read(ctx, of.API, a.in.Namespace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", of, err)
	}
	if err := now.ReadSecrets(ctx, of.API, stated, c); err != nil {
		return nil, fmt.Errorf("%s: %w", of, err)
	}
	for _, kind := range slices.Sorted(maps.Keys(now.Unread)) {
		fmt.Fprintf(notes, "note: objects of kind %s were not read: %s\n", kind, show.Printable(now.Unread[kind]))
	}
	if err := a.exists(now, stated); err != nil {
		return nil, err
	}
	if a.only {
		return analyze.New(analyze.Run(now, c), analyze.Run(analyze.Over(now, stated), c)), nil
	}
	in := analyze.Over(now, stated)
	if err := a.ask(ctx, &in, notes); err != nil && a.server != "" {
		return nil, err
	} else if err != nil {
		fmt.Fprintln(notes, "note: the control plane was not asked for codes that it alone knows (NAV1005 and following): "+
			show.Printable(strings.ReplaceAll(err.Error(), "\n", " ")))
	}
	return analyze.Run(in, c), nil
}

// exists returns an error if the inputs have neither an object in the namespace of --namespace nor that Namespace
// itself. In this case the name is probably mistyped, and "No findings." would be misleading.
func (a *analysis) exists(all ...analyze.Input) error {
	if a.namespace == "" {
		return nil
	}
	for _, in := range all {
		for _, p := range in.Problems { // a document that cannot be read may be of the namespace
			if p.ID.Namespace == a.namespace || p.ID == (object.ID{}) {
				return nil
			}
		}
		for _, e := range in.Events {
			if e.ID.Namespace == a.namespace || e.ID.Kind == "Namespace" && e.ID.Name == a.namespace {
				return nil
			}
		}
	}
	return fmt.Errorf("--namespace: there is no object of namespace %s, and no Namespace %s: nothing was analysed",
		show.Printable(a.namespace), show.Printable(a.namespace))
}

// analyzed is the output of -o json and -o yaml.
type analyzed struct {
	SchemaVersion int               `json:"schemaVersion"`
	Findings      []analyze.Finding `json:"findings"`
}

// print prints findings in the chosen format. With -o name it prints the names of the objects that the findings are
// about.
func (a *analysis) print(cmd *cobra.Command, found []analyze.Finding) error {
	switch a.format {
	case "sarif":
		return analyze.WriteSARIF(cmd.OutOrStdout(), found)
	case "junit":
		return analyze.WriteJUnit(cmd.OutOrStdout(), found, problem.Severity(a.fail))
	}
	r := rows{value: analyzed{1, append([]analyze.Finding{}, found...)},
		table: func(w io.Writer, _ bool) error { return analyze.WriteText(w, found) }}
	for _, f := range found {
		r.names = append(r.names, objectName(f.Object))
	}
	if len(found) > 0 {
		r.next = nextIs("the names of the codes", "analyze", "--list")
	}
	return a.format.write(cmd, r)
}

// listCodes prints the codes of analyze.
func listCodes(w io.Writer) error {
	rows := [][]string{{"CODE", "SEVERITY", "REPORTED BY", "NAME"}}
	for _, code := range analyze.Codes() {
		rows = append(rows, []string{string(code), string(code.Severity()), string(analyze.ReporterOf(code)), code.Name()})
	}
	return show.Table(w, rows)
}
