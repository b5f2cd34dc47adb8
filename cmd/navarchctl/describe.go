package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/describe"
	"navarch.io/navarch/push/inspect"
)

// description contains the flags of the command describe.
type description struct {
	target
	offline offline
	host    string // --host
	from    string // --from
	limit   int    // maximum number of listed hosts of a proxy
	format  output

	unready bool // the control plane has no configuration yet
}

// nouns maps further words, such as kubectl's short names, to the nouns of the command describe.
var nouns = map[string]string{"po": describe.Pod, "pods": describe.Pod, "svc": describe.Service, "services": describe.Service,
	"serviceentry": describe.Service, "se": describe.Service, "workloads": describe.Workload, "gw": describe.Gateway,
	"gateways": describe.Gateway, "vs": describe.Route, "virtualservice": describe.Route, "virtualservices": describe.Route,
	"routes": describe.Route, "hosts": describe.Host}

func describeCommand() *cobra.Command {
	d := &description{target: target{controlPlane: controlPlane{everyRole: true}}}
	cmd := &cobra.Command{
		Use:   "describe pod|workload|service|gateway|host|route NAME[.NAMESPACE]",
		Short: "Say what the mesh makes of a Pod, workload, service, gateway, host or route, and which objects decided it",
		Long: `Describes one thing by what proxies were planned. Each line ends in the object that made it, with the field where it is known;
(default) means that no object decides. Facts that are equal for several proxies are printed once. A line names up to three
objects; with -o wide all of them. -o name lists the objects that were named.

pod, workload   who it is; services, ports and mTLS by port, policies in order of evaluation, EnvoyFilters, Telemetry; the Sidecar and
                what its scope costs; hosts. --host HOST describes one host in full. A workload may be KIND/NAME.
service         a Service or ServiceEntry: what the workloads behind it do with requests, and how clients reach it.
host            how clients reach a host: routes in order, rules that do not apply and why, the merged policy, endpoints by locality.
gateway         a Gateway: its listeners, hosts and routes, by gateway proxy.
route           a VirtualService: its hosts, and for which of them it decides.

After these follow the problems of all objects that were named, and the last changes that touched one of them.

With -o json: {schema, subject, revision, objects, problems, changes, more, groups: [{side, gateway, proxies, total,
sections: [{name, facts: [{subject, text, by}]}]}]}.`,
		Example: `  navarchctl describe pod web-5d4f8c7b9-aaaaa.shop
  navarchctl describe pod web-5d4f8c7b9-aaaaa.shop --host catalog
  navarchctl describe workload reviews -n backend
  navarchctl describe service catalog.shop
  navarchctl describe host reviews.backend --from web-5d4f8c7b9-aaaaa.shop
  navarchctl describe gateway shop.edge
  navarchctl describe route reviews.backend -o yaml

  # Without a server.
  navarchctl describe host catalog.shop --config-dir deploy/demo/shop --proxy deploy/demo/node.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return d.run(cmd, args[0], args[1]) },
	}
	d.offline.bind(cmd)
	d.controlPlane.bind(cmd.Flags())
	f := cmd.Flags()
	f.StringVarP(&d.namespace, "namespace", "n", "", "Namespace of a NAME without one (default: default).")
	f.StringVar(&d.host, "host", "", "Of a Pod or workload: the host to describe in full.")
	f.StringVar(&d.from, "from", "", "Only this client, NAME.NAMESPACE: how it reaches a service, host or route.")
	f.IntVar(&d.limit, "limit", describe.DefaultHosts, fmt.Sprintf("The most hosts of a proxy that are listed, up to %d.", describe.MaxHosts))
	for _, flag := range []string{"server", "kubeconfig", "context"} {
		cmd.MarkFlagsMutuallyExclusive("config-dir", flag)
	}
	cmd.ValidArgsFunction = offer(d.names)
	completesBy(cmd, "from", d.proxiesOrFiles(&offline{}))
	completesBy(cmd, "proxy", d.proxiesOrFiles(&d.offline))
	d.format.bindRows(cmd)
	return cmd
}

// names lists the words for an argument. The words for the first argument are the nouns. The words for the second
// argument are the names of the noun's objects.
func (d *description) names(ctx context.Context, _ *cobra.Command, args []string) ([]string, error) {
	if len(args) == 0 {
		return describe.Nouns, nil
	}
	if len(args) > 1 || d.offline.configDir != "" {
		return nil, nil
	}
	kinds := map[string]string{describe.Service: "service", describe.Gateway: "gateway", describe.Route: "virtualservice"}
	switch noun := nounOf(args[0]); {
	case noun == describe.Pod:
		return d.connected(ctx)
	case kinds[noun] != "":
		k, err := parseKind(kinds[noun])
		if err != nil {
			return nil, err
		}
		return (&waiter{controlPlane: d.controlPlane, namespace: d.namespace}).objectsOf(ctx, k)
	}
	return nil, nil
}

// nounOf returns the noun of a word. It returns an unknown word in lower case.
func nounOf(word string) string {
	if noun := nouns[strings.ToLower(word)]; noun != "" {
		return noun
	}
	return strings.ToLower(word)
}

// run prints the description of the subject that a noun and a name state.
func (d *description) run(cmd *cobra.Command, noun, name string) error {
	defer d.close()
	q, err := d.query(cmd.Context(), nounOf(noun), name)
	if err != nil {
		return err
	}
	out := &show.Described{Schema: fleetapi.Schema, Subject: subjectOf(q), Problems: []inspect.Problem{}, Changes: []show.Touched{}}
	switch {
	case d.offline.configDir != "":
		err = d.planned(q, out)
	case d.offline.proxy != "":
		err = errors.New("--proxy needs --config-dir, and names the file of a node: use --from to select a client, or describe pod NAME " +
			"to describe one proxy")
	default:
		err = d.asked(cmd, q, out)
	}
	if err != nil {
		return err
	}
	if err := d.missingOf(q, out); err != nil {
		return err
	}
	var names []string
	for _, object := range out.Named() {
		names = append(names, objectName(object))
	}
	return d.format.write(cmd, rows{value: out, names: names, next: d.next(q, out),
		table: func(w io.Writer, wide bool) error { return show.Description(w, out, wide) }})
}

// missingOf returns an error if nothing is known of the subject, or if the proxies of a Pod or workload lack the host
// of --host. For a Pod or workload without a connected proxy, it adds a sentence to the description.
func (d *description) missingOf(q describe.Query, out *show.Described) error {
	of := func(side string) bool {
		return slices.ContainsFunc(out.Groups, func(g describe.Group) bool { return g.Side == side })
	}
	hosts := func(g describe.Group) bool {
		return slices.ContainsFunc(g.Sections, func(s describe.Section) bool { return strings.HasPrefix(s.Name, "host ") })
	}
	isWorkload := q.Noun == describe.Pod || q.Noun == describe.Workload
	switch {
	case out.Empty() && d.unready:
		return errors.New("the control plane has no configuration yet, so it serves no proxy and describes nothing: " +
			"navarchctl problems says what is missing")
	case out.Empty():
		return errors.New(show.Printable(strings.Join(append([]string{q.Unknown()}, out.More...), "; ")))
	case isWorkload && !of(describe.Itself):
		out.More = append(out.More, "no proxy of this "+q.Noun+" is connected: its ports, mTLS, policies and hosts are not known "+
			"(navarchctl proxy-status lists the connected proxies)")
	case isWorkload && d.host != "" && !slices.ContainsFunc(out.Groups, hosts):
		return errors.New(show.Printable(fmt.Sprintf("--host: the %s %s/%s is connected, and does not have the host %q: "+
			"without --host its hosts are listed", q.Noun, q.Namespace, q.Name, d.host)))
	}
	return nil
}

// subjectOf names the subject of a query.
func subjectOf(q describe.Query) string {
	if q.Noun == describe.Host {
		return q.Noun + " " + q.Name
	}
	return q.Noun + " " + q.Namespace + "/" + q.Name
}

// query returns the query that the arguments and flags describe. Errors name the argument or flag.
func (d *description) query(ctx context.Context, noun, name string) (q describe.Query, err error) {
	q = describe.Query{Noun: noun, Name: name, Namespace: d.namespace, Host: d.host, From: d.from, Limit: d.limit}
	if d.host != "" && noun != describe.Pod && noun != describe.Workload {
		return q, fmt.Errorf("--host is for a pod or a workload: navarchctl describe host %s", d.host)
	}
	if d.from != "" && (noun == describe.Pod || noun == describe.Workload) {
		return q, fmt.Errorf("--from is for a service, host, gateway or route: a %s is described itself", noun)
	}
	kind, rest, joined := strings.Cut(name, "/")
	switch {
	case noun == describe.Host:
	case noun == describe.Pod && d.offline.configDir == "":
		proxy, err := d.resolve(ctx, name)
		if err != nil {
			return q, err
		}
		if name, namespace, is := splitProxy(proxy); is {
			q.Name, q.Namespace = name, namespace
		}
	case joined && noun == describe.Workload && workloadKinds[kind] != "":
		q.Name, q.Namespace = d.split(rest)
	case joined:
		q.Namespace, q.Name = kind, rest
	default:
		q.Name, q.Namespace = d.split(name)
	}
	return q, q.Check()
}

// split returns the name and the namespace of a subject. With --namespace, the argument is the name. Otherwise the
// argument is NAME.NAMESPACE, the full host name of a Service, or NAME in the namespace "default".
func (d *description) split(name string) (string, string) {
	if d.namespace != "" {
		return name, d.namespace
	}
	if before, _, is := strings.Cut(name, ".svc."); is {
		name = before
	}
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		return name[:dot], name[dot+1:]
	}
	return name, "default"
}

// asked requests the description from the control plane, with the problems and changes of the objects in the
// description.
func (d *description) asked(cmd *cobra.Command, q describe.Query, out *show.Described) error {
	values := url.Values{"noun": {q.Noun}, "name": {q.Name}, "limit": {strconv.Itoa(q.Limit)}}
	for key, value := range map[string]string{"namespace": q.Namespace, "host": q.Host, "from": q.From} {
		if value != "" {
			values.Set(key, value)
		}
	}
	answer, err := askAny[describe.Part](cmd.Context(), &d.controlPlane, "describe", values)
	if err != nil {
		return err
	}
	d.unready = answer.Revision == 0 && openedOf(cmd.Context()) == nil
	if err := d.warnOfMissing(cmd.ErrOrStderr(), "proxies", answer.Partial); err != nil || len(answer.Items) == 0 {
		return err
	}
	out.Part, out.Revision = answer.Items[0], answer.Revision
	return d.known(cmd.Context(), out, answer.Partial)
}

// Bounds of the requests about the objects of a description.
const (
	objectsAtOnce = 60  // objects in one request
	maxObjects    = 300 // objects in all requests
	maxTouched    = 10  // changes that are listed
)

// known adds the problems of the objects of a description, and the last maxTouched changes that touched one of the
// objects. Objects after the first maxObjects are left out, with a note. Other notes name the replicas whose problems
// were not received. They leave out the replicas in missing, because a warning has named these.
func (d *description) known(ctx context.Context, out *show.Described, missing []fleetapi.Missing) error {
	names := slices.DeleteFunc(out.Named(), func(name string) bool { return strings.Contains(name, ",") })
	if left := len(names) - maxObjects; left > 0 {
		out.More = append(out.More, fmt.Sprintf("problems and changes of %d further objects are not listed", left))
		names = names[:maxObjects]
	}
	seen := map[int64]bool{}
	for some := range slices.Chunk(names, objectsAtOnce) {
		of := url.Values{"object": {strings.Join(some, ",")}}
		problems, err := d.problems(ctx, of)
		if err != nil {
			out.More = append(out.More, "problems are not listed: "+err.Error())
			return nil
		}
		for _, p := range problems.Items {
			out.Problems = append(out.Problems, p.Problem)
		}
		for _, note := range unlisted(problems, missing) {
			if !slices.Contains(out.More, note) {
				out.More = append(out.More, note)
			}
		}
		of.Set("limit", strconv.Itoa(maxTouched))
		changes, err := askAny[fleetapi.Change](ctx, &d.controlPlane, "changes", of)
		if err != nil {
			return err
		}
		for _, c := range changes.Items {
			if touched := touchedBy(&c, names); !seen[c.Last] && len(touched) > 0 {
				seen[c.Last] = true
				out.Changes = append(out.Changes, show.Touched{Lane: c.Lane, Revision: c.Last, Since: c.Since, Affected: c.Affected,
					Acknowledged: c.Acknowledged, Objects: touched})
			}
		}
	}
	slices.SortFunc(out.Changes, func(a, b show.Touched) int { return int(b.Revision - a.Revision) })
	out.Changes = out.Changes[:min(len(out.Changes), maxTouched)]
	return nil
}

// unlisted returns notes about problems that are not in an answer. It leaves out the problems of the replicas in
// missing.
func unlisted(a fleetapi.Answer[fleetapi.Problem], missing []fleetapi.Missing) (notes []string) {
	for _, m := range a.Partial {
		if !slices.ContainsFunc(missing, func(known fleetapi.Missing) bool { return known.Replica == m.Replica }) {
			notes = append(notes, "problems that "+m.Replica+" alone knows are not listed: "+m.Reason)
		}
	}
	if a.Next != "" {
		notes = append(notes, fmt.Sprintf("problems after the first %d are not listed", len(a.Items)))
	}
	return notes
}

// touchedBy returns the first four objects of a change that occur in names, which must be sorted.
func touchedBy(c *fleetapi.Change, names []string) (all []string) {
	for _, o := range c.Objects {
		if _, is := slices.BinarySearch(names, o); is && len(all) < 4 {
			all = append(all, o)
		}
	}
	return all
}

// planned describes a subject from a folder of configuration, for the proxy whose node is in the file of --proxy. It
// sends no request.
func (d *description) planned(q describe.Query, out *show.Described) error {
	if d.offline.proxy == "" {
		return errors.New("--config-dir: --proxy has to name the file of a proxy's node")
	}
	planner, _, problems, err := d.offline.plan()
	if err != nil {
		return err
	}
	if out.Part, err = describe.Of(planner, planner.Snapshot(), q, func(string) bool { return true }); err != nil {
		return err
	}
	names := out.Named()
	is := func(object string) bool {
		_, found := slices.BinarySearch(names, object)
		return found
	}
	for _, p := range problems {
		if is(p.ID.String()) {
			out.Problems = append(out.Problems, inspect.Problem{Object: p.ID.String(), Location: p.Location, Field: p.Field, Code: p.Code,
				Analyzer: p.Analyzer, Severity: p.Severity, Message: p.Full()})
		}
	}
	for _, p := range planner.Problems() {
		if is(p.Key.String()) {
			out.Problems = append(out.Problems, inspect.Problem{Object: p.Key.String(), Field: p.Field, Code: p.Code, Analyzer: p.Analyzer,
				Severity: p.Severity, Message: p.Full()})
		}
	}
	return nil
}
