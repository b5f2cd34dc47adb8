package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

func renderCommand() *cobra.Command {
	var (
		from   offline
		noun   string
		strict bool
		format output
	)
	cmd := &cobra.Command{
		Use:   "render --config-dir DIR --proxy NODE.json",
		Short: "Print what a proxy would get, without a server",
		Long: `Reads a folder of Istio and Kubernetes YAML as navarchd would, and prints the resources that a proxy would get as
{"clusters": [...], "endpoints": [...], "listeners": [...], "routes": [...], "secrets": [...], "extensions": [...]}, in Envoy's proto
JSON. The output has the Secrets that the resources name and that the node's service account may have according to the
folder's roles. It has no private keys. Problems of the configuration go to standard error. NODE.json is an Envoy
core.v3 Node, as in the node of a bootstrap.`,
		Example: `  navarchctl render --config-dir deploy/demo/shop --proxy deploy/demo/node.json --type route -o yaml

  # In a pipeline: exit code 1 where the configuration has problems.
  navarchctl render --config-dir deploy/demo/shop --proxy deploy/demo/node.json --strict >/dev/null`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return render(cmd, &from, noun, &format, strict) },
	}
	from.bind(cmd)
	cmd.Flags().StringVar(&noun, "type", "", "Only this type: cluster, endpoint, listener, route, secret, extension.")
	completes(cmd, "type", "cluster", "endpoint", "listener", "route", "secret", "extension")
	cmd.Flags().BoolVar(&strict, "strict", false, "Exit with 1 when the configuration has problems.")
	format.bind(cmd, "json", "yaml")
	for _, name := range []string{"config-dir", "proxy"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag was not bound
		}
	}
	return cmd
}

// render prints the resources of one type (cluster, route and so on), or of all types if noun is empty. After printing,
// it returns errProblems if strict is set and the configuration has problems.
func render(cmd *cobra.Command, from *offline, noun string, format *output, strict bool) error {
	var wanted []xds.Type
	if noun != "" {
		t := xds.ParseNoun(noun)
		if t == xds.Unknown {
			return fmt.Errorf("--type: unknown type %q: cluster, endpoint, listener, route, secret or extension", noun)
		}
		wanted = append(wanted, t)
	}
	planner, proxy, problems, err := from.plan()
	if err != nil {
		return err
	}
	planned := planner.Problems()
	for _, location := range from.skipped {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: "+location+" is no object of Kubernetes, and is skipped")
	}
	reportProblems(cmd.ErrOrStderr(), problems)
	for _, p := range planned {
		fmt.Fprintln(cmd.ErrOrStderr(), p.Error()+p.Analyzer.Suffix())
	}
	rendered, err := inspect.Render(inspect.Of(proxy.Set()), wanted...)
	if err != nil {
		return err
	}
	if err := format.print(cmd.OutOrStdout(), rendered); err != nil {
		return err
	}
	if strict && len(problems)+len(planned) > 0 {
		return errProblems
	}
	return nil
}

func (o *offline) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.configDir, "config-dir", "", "Folder of Istio and Kubernetes YAML.")
	cmd.Flags().StringVar(&o.proxy, "proxy", "", "The proxy: file of an Envoy core.v3 Node, or NAME[.NAMESPACE] with --server.")
	cmd.Flags().StringVar(&o.cluster, "cluster-id", "Kubernetes", "Name of the cluster to which the configuration belongs.")
	cmd.Flags().StringVar(&o.domain, "domain", "cluster.local", "DNS domain of the cluster.")
}
