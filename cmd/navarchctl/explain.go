package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

func explainCommand() *cobra.Command {
	var (
		from   offline
		at     target
		format output
	)
	cmd := &cobra.Command{
		Use:   "explain --proxy NAME[.NAMESPACE]|KIND/NAME|NODE.json RESOURCE",
		Short: "Say which objects made a resource, or where a Secret of a gateway stands",
		Long: `Names the objects that made a resource of a proxy, with the field in them where it is known, what was read of the proxy, and
what was decided from these. RESOURCE is the name that Envoy has: a cluster, a listener, a route configuration, or
kubernetes://NAME, the Secret of a gateway, of which it says where it stands.

The proxy is NAME.NAMESPACE of the control plane that the kubeconfig leads to, or at an address (--server; without a kubeconfig ` + defaultServer + `), or
a file with an Envoy core.v3 Node beside a folder of configuration (--config-dir), without a server.

With -o json, an answer is a list of {type, message, name, version, specs, secret}: specs are the parts of the resource, each
{builder: what it is, inputs: [{field: what it is, from: object|proxy|plan, values}]}.`,
		Example: `  navarchctl explain --proxy web-5d4f8c7b9-aaaaa.shop 'outbound|8000||catalog.shop.svc.cluster.local'
  navarchctl explain --server 127.0.0.1:8080 --proxy web-5d4f8c7b9-aaaaa.shop 'outbound|8000||catalog.shop.svc.cluster.local'

  # Which VirtualServices made a route configuration.
  navarchctl explain --proxy web-5d4f8c7b9-aaaaa -n shop 8000 -o name

  # Without a server.
  navarchctl explain --config-dir deploy/demo/shop --proxy deploy/demo/node.json 'outbound|8000||catalog.shop.svc.cluster.local'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := explained(cmd, &from, &at, args[0])
			if err != nil {
				return err
			}
			r := rows{value: found, names: explainObjects(found),
				table: func(w io.Writer, _ bool) error { return explainTable(w, found) }}
			if from.configDir == "" && len(found) > 0 && xds.ParseNoun(found[0].Type) != xds.Unknown {
				r.next = nextIs("the resource itself", "proxy-config", found[0].Type, at.asked, "-o", "yaml")
			}
			return format.write(cmd, r)
		},
	}
	from.bind(cmd)
	at.controlPlane.bind(cmd.Flags())
	cmd.Flags().StringVarP(&at.namespace, "namespace", "n", "", "Namespace of a --proxy NAME without one.")
	completesBy(cmd, "proxy", at.proxiesOrFiles(&from))
	cmd.ValidArgsFunction = offerFirst(func(ctx context.Context, _ *cobra.Command, _ []string) ([]string, error) {
		return at.resourcesOf(ctx, from.proxy)
	})
	format.bindRows(cmd)
	return cmd
}

// explained requests the explanation from the proxy's replica. With --config-dir it makes the explanation from the
// folder. If the proxy does not have the resource, explained returns an error.
func explained(cmd *cobra.Command, from *offline, at *target, name string) (found []inspect.Explanation, err error) {
	switch {
	case at.stated() && from.configDir != "":
		return nil, errors.New("--config-dir excludes --server, --kubeconfig and --context")
	case from.configDir == "" && strings.HasSuffix(from.proxy, ".json"):
		return nil, fmt.Errorf("--proxy %s is a file: --config-dir must name the folder of the configuration", from.proxy)
	case from.configDir == "":
		defer at.close()
		proxy, err := at.resolve(cmd.Context(), from.proxy)
		if err != nil {
			return nil, err
		}
		at.asked = proxy
		raw, err := at.ofProxy(cmd.Context(), "explain", url.Values{"proxy": {proxy}, "resource": {name}},
			"/debug/explain?"+url.Values{"proxyID": {proxy}, "resource": {name}}.Encode())
		if err == nil {
			err = json.Unmarshal(raw, &found)
		}
		return found, err
	}
	planner, proxy, _, err := from.plan()
	if err != nil {
		return nil, err
	}
	specs := func(t xds.Type, name string) []any { return planner.Explain(proxy, t, name) }
	if found = inspect.Explain(proxy.Set(), name, specs); len(found) == 0 {
		return nil, fmt.Errorf("the proxy has no resource %q", name)
	}
	return found, nil
}

// explainObjects returns the names of the objects that made the resources. A name may occur more than once.
func explainObjects(found []inspect.Explanation) (names []string) {
	for _, e := range found {
		if e.Secret != nil {
			names = append(names, objectName(e.Secret.Object))
		}
		for _, made := range e.Specs {
			for _, input := range made.Inputs {
				for _, v := range input.Values {
					if of := strings.Fields(v); input.From == inspect.FromObject && len(of) > 1 {
						names = append(names, objectName(of[0]+" "+of[1]))
					}
				}
			}
		}
	}
	return names
}

// groups lists the headings for the inputs of a resource's parts, in the order of output.
var groups = []struct{ from, heading string }{
	{inspect.FromObject, "objects"}, {inspect.FromProxy, "read of the proxy"}, {inspect.FromPlan, "decided from these"},
}

func explainTable(w io.Writer, found []inspect.Explanation) error {
	for _, e := range found {
		if e.Secret != nil {
			secretTable(w, e)
			continue
		}
		fmt.Fprintf(w, "%s %s (%s, version %s)\n", e.Type, show.Printable(e.Name), e.Message, e.Version)
		for _, made := range e.Specs {
			fmt.Fprintf(w, "  %s\n", made.By)
			for _, g := range groups {
				if err := explainGroup(w, g.from, g.heading, made.Inputs); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func explainGroup(w io.Writer, from, heading string, inputs []inspect.Input) error {
	var rows [][]string
	for _, input := range inputs {
		if input.From != from {
			continue
		}
		for i, v := range input.Values {
			field := ""
			if i == 0 {
				field = input.Field
			}
			if from == inspect.FromObject { // the object is the important part
				rows = append(rows, []string{"      " + v, input.Field})
			} else {
				rows = append(rows, []string{"      " + field, v})
			}
		}
	}
	if rows == nil {
		return nil
	}
	fmt.Fprintf(w, "    %s\n", heading)
	return show.Table(w, rows)
}

// secretTable prints the state of a Secret.
func secretTable(w io.Writer, e inspect.Explanation) {
	lines := []string{fmt.Sprintf("%s %s: %s", e.Type, e.Name, e.Secret.State)}
	for _, line := range []struct{ what, text string }{{"because", e.Secret.Why}, {"made of", e.Secret.Object}} {
		if line.text != "" {
			lines = append(lines, line.what+" "+line.text)
		}
	}
	for _, object := range e.Secret.Named {
		lines = append(lines, "named by "+object)
	}
	for _, proxy := range e.Secret.Wanted {
		lines = append(lines, "wanted by "+proxy)
	}
	for i, line := range lines {
		if i > 0 {
			fmt.Fprint(w, "  ")
		}
		fmt.Fprintln(w, show.Printable(line))
	}
}
