package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// authzQuery contains the options of authz check and who-can.
type authzQuery struct {
	walks
	client
	from, to string
	port     uint32
	format   output
}

func authzCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "authz",
		Short: "Ask who may call a workload",
		Long:  "Answers from the policies that the workload's proxy holds: AuthorizationPolicies, PeerAuthentications and tokens.",
		Example: "  navarchctl authz check --from web-5d4f8c7b9-aaaaa.shop --to catalog-6b7d9f8c5-bbbbb.shop GET /items\n" +
			"  navarchctl authz who-can --to catalog-6b7d9f8c5-bbbbb.shop GET /items",
	}
	cmd.AddCommand(authzCheckCommand(), whoCanCommand())
	return cmd
}

func authzCheckCommand() *cobra.Command {
	q := &authzQuery{}
	cmd := &cobra.Command{
		Use:   "check {NAME | --to NAME[.NAMESPACE]|KIND/NAME|NODE.json [--from NAME|--identity SPIFFE-ID] [METHOD] PATH|URL}",
		Short: "Say whether a client may call a path of a workload, and which policy decides",
		Long: `Follows one request through the proxy of the workload that is called, and prints for each of its ports whether the request is
allowed, and the policy with its rule that decides. The client is the workload of the proxy --from, the service account --identity, or,
without both, a client without a certificate.

With --from, the clusters of that proxy that have this port of the workload as an endpoint state the transport: mTLS, plain text or
other TLS. For --identity, and for a proxy without such a cluster, the transport is mTLS at ports that accept the mesh's mTLS. At other
ports it is plain text, or TLS without the mesh's certificate for a URL with https. In plain text a client has no identity, and its row
says "in plain text".

A NAME alone, as for istioctl x authz check, is --to NAME, and the path is /. --jwt gives the client a token, which is not verified.

An authorization service (action CUSTOM) is not asked: the answer is then marked possible.`,
		Example: `  navarchctl authz check --from web-5d4f8c7b9-aaaaa.shop --to catalog-6b7d9f8c5-bbbbb.shop GET /items
  navarchctl authz check --identity spiffe://cluster.local/ns/shop/sa/web --to catalog-6b7d9f8c5-bbbbb.shop --port 8080 POST /items
  navarchctl authz check catalog-6b7d9f8c5-bbbbb.shop

  # Without a server.
  navarchctl authz check --config-dir deploy/demo/shop --to deploy/demo/node.json GET /items`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && q.to == "" && !strings.HasPrefix(args[0], "/") && !strings.Contains(args[0], "://") {
				q.to, args = args[0], []string{"/"}
			}
			return q.check(cmd, args)
		},
		ValidArgsFunction: q.complete,
	}
	q.bind(cmd)
	cmd.Flags().StringVar(&q.from, "from", "", "The proxy of the client.")
	cmd.MarkFlagsMutuallyExclusive("from", "identity")
	q.completesProxies(cmd, "from")
	return cmd
}

func whoCanCommand() *cobra.Command {
	q := &authzQuery{}
	cmd := &cobra.Command{
		Use:   "who-can --to NAME[.NAMESPACE]|KIND/NAME|NODE.json [METHOD] PATH|URL",
		Short: "List the identities that may call a path of a workload",
		Long: `Follows one request for each identity through the proxy of the workload that is called. The policies of the proxy state
some of the identities, without a wildcard. Others are the identities of the servers that the proxy itself calls, and with --config-dir
all service accounts of the folder. The command adds two clients: the service account another of the namespace another-namespace, which
stands for accounts that no policy names, and a client without a certificate. With --identity it examines that identity alone.

The identities use mTLS at ports that accept the mesh's mTLS. At other ports they use plain text, or TLS without the mesh's certificate
for a URL with https, and have no identity.`,
		Example: `  navarchctl who-can --to catalog-6b7d9f8c5-bbbbb.shop GET /items

  # Without a server.
  navarchctl who-can --config-dir deploy/demo/shop --to deploy/demo/node.json GET /items`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return q.whoCan(cmd, args) },
	}
	q.bind(cmd)
	return cmd
}

func (q *authzQuery) bind(cmd *cobra.Command) {
	q.walks.bind(cmd)
	q.client.bind(cmd)
	cmd.Flags().StringVar(&q.to, "to", "", "The proxy of the workload that is called.")
	cmd.Flags().Uint32Var(&q.port, "port", 0, "The port of the workload itself; 0: all of its ports.")
	q.completesProxies(cmd, "to")
	q.format.bindRows(cmd)
}

// decision is the answer for one client at one port.
type decision struct {
	Client string `json:"client"` // SPIFFE ID, or noCertificate
	Port   uint32 `json:"port"`   // of the called workload
	// PlainText means that the client has an identity, but calls in plain text, so policies do not see the identity. It
	// is false for a client with TLS of its own, whose identity policies do not see either.
	PlainText  bool   `json:"plainText,omitempty"`
	Allowed    bool   `json:"allowed"`
	Confidence string `json:"confidence"` // walk.Confidence in words
	// By is the policy rule that decides. Without such a rule it is the reason for the refusal, or states that no
	// policy denies the request.
	By string `json:"by"`
	// Policy is Envoy's name of the policy rule that decides; empty: no rule decides.
	Policy string `json:"policy,omitempty"`
}

// noCertificate is the output's text for a client without an identity.
const noCertificate = "a client without a certificate"

// target returns the proxy of the called workload, and the ports to examine: the port of --port, or the ports that the
// URL in args means, or all ports of the workload. A workload without known ports needs --port. Errors: the proxy
// cannot be found, the workload does not have the port, or --port is missing.
func (q *authzQuery) target(cmd *cobra.Command, args []string) (*subject, []uint32, error) {
	s, err := q.proxy(cmd, q.to)
	if err != nil {
		return nil, nil, fmt.Errorf("--to: %w", err)
	}
	ports := s.held.Ports()
	if q.port != 0 {
		if !slices.Contains(ports, q.port) && len(ports) > 0 {
			return nil, nil, fmt.Errorf("--port %d: the workload has the ports %s", q.port, strings.Trim(fmt.Sprint(ports), "[]"))
		}
		ports = []uint32{q.port}
	} else if r, err := requestOf(args, ""); err == nil {
		ports = s.portsOf(r.Port, ports)
	}
	if len(ports) == 0 {
		return nil, nil, fmt.Errorf("the workload has no port that a Service or Sidecar states: state one by --port")
	}
	return s, ports, nil
}

// request returns a request to a port of the workload. The command's arguments args are [METHOD] PATH|URL. The default
// method is GET. For a URL with https, the client speaks TLS of its own, unless it uses the mesh's mTLS. Errors: an
// invalid path, or an error of the client's flags.
func (q *authzQuery) request(cmd *cobra.Command, s *subject, args []string, port uint32) (walk.Request, error) {
	method, path, host, scheme := "GET", args[len(args)-1], "workload", "http"
	if len(args) == 2 {
		method = strings.ToUpper(args[0])
	}
	if u, err := url.Parse(path); err == nil && u.Host != "" {
		host, path, scheme = u.Host, u.RequestURI(), cmp.Or(u.Scheme, scheme)
	} else if !strings.HasPrefix(path, "/") {
		return walk.Request{}, fmt.Errorf("path %q: want /PATH or a URL", path)
	}
	r := walk.Request{Scheme: scheme, Name: host, Port: port,
		Headers: map[string]string{":method": method, ":authority": host, ":scheme": scheme, ":path": path}}
	s.address(walk.Inbound, &r)
	err := q.client.apply(cmd, &r)
	return r, err
}

// assumed follows one request to a port of the workload, from a client whose proxy is not known. As with automatic
// mTLS, the client uses mTLS if it has an identity and the port accepts the mesh's mTLS. Otherwise it uses plain text,
// or TLS of its own if the scheme of the request is https. An empty identity means a client without a certificate.
func assumed(s *subject, r walk.Request, identity string) decision {
	plain := decisionOf(walk.Walk(s.held, walk.Inbound, as(r, "")), r.Port, identity)
	if identity == "" {
		return plain
	}
	mutual := as(r, identity)
	mutual.Scheme = "http"
	result := walk.Walk(s.held, walk.Inbound, mutual)
	if result.MeshTLS {
		return decisionOf(result, r.Port, identity)
	}
	plain.PlainText = !as(r, "").SpeaksTLS()
	return plain
}

// as returns a copy of the request with the given identity of the client. An empty identity means a client without a
// certificate of the mesh.
func as(r walk.Request, identity string) walk.Request {
	r.Identity = identity
	return r
}

// sent follows one request from the proxy of a client to a port of the workload. Several clusters of the client's proxy
// may lead to the port. The result has each different decision once. If no cluster leads to the port, sent returns the
// decision of the function assumed, with a confidence of at most walk.Likely.
func sent(from, to *subject, r walk.Request) (all []decision) {
	for _, call := range from.held.Direct(from.Peer, to.Peer, r.Port, as(r, "")) {
		v := decision{Client: from.Identity, Port: r.Port, Confidence: walk.Certain.String(), By: call.Broken}
		if call.Server != nil {
			v = decisionOf(*call.Server, r.Port, from.Identity)
		}
		v.PlainText = call.Upstream.Mode == "plain"
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	if all == nil {
		v := assumed(to, r, from.Identity)
		if v.Confidence == walk.Certain.String() {
			v.Confidence = walk.Likely.String()
		}
		all = []decision{v}
	}
	return all
}

// decisionOf derives a decision from a walk, which is the simulated path of a request through the proxy of a workload.
// The request is denied if the connection is closed, no listener serves it, or the proxy answers 401 or 403.
func decisionOf(result walk.Result, port uint32, identity string) decision {
	v := decision{Client: cmp.Or(identity, noCertificate), Port: port, Allowed: true, Confidence: result.Confidence.String(),
		By: "no policy denies it"}
	refused := result.Outcome == walk.Closed || result.Outcome == walk.Unserved ||
		result.Outcome == walk.Answered && (result.Status == http.StatusForbidden || result.Status == http.StatusUnauthorized)
	if result.Outcome == walk.Forwarded {
		v.Confidence = result.Admission.String()
	}
	switch {
	case refused:
		v.Allowed, v.Policy, v.By = false, result.Policy, reasonOf(result)
		if result.Policy != "" {
			v.By = walk.RuleText(result.Policy)
		}
	case result.Policy != "":
		v.Policy, v.By = result.Policy, walk.RuleText(result.Policy)
	}
	return v
}

// reasonOf returns the text of the last step of a walk. If the walk has no steps, it returns the walk's summary.
func reasonOf(result walk.Result) string {
	if len(result.Steps) == 0 {
		return result.Summary()
	}
	return strings.TrimPrefix(result.Steps[len(result.Steps)-1].Text, "denied: ")
}

func (q *authzQuery) check(cmd *cobra.Command, args []string) error {
	var from *subject
	if q.from != "" {
		of, err := q.proxy(cmd, q.from)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		if from = of; from.Identity == "" {
			return fmt.Errorf("the service account of %s is not known: state it by --identity", q.from)
		}
	}
	s, ports, err := q.target(cmd, args)
	if err != nil {
		return err
	}
	var all []decision
	denied := map[uint32]bool{}
	for _, port := range ports {
		r, err := q.request(cmd, s, args, port)
		if err != nil {
			return err
		}
		of := []decision{}
		if from != nil {
			of = sent(from, s, r)
		} else {
			of = append(of, assumed(s, r, q.principal))
		}
		for _, v := range of {
			if !v.Allowed {
				denied[port] = true
			}
		}
		all = append(all, of...)
	}
	if err := q.print(cmd, args, all); err != nil {
		return err
	}
	if len(denied) > 0 {
		return exitError{exitDenied, fmt.Sprintf("denied at %d of %d ports", len(denied), len(ports))}
	}
	return nil
}

func (q *authzQuery) whoCan(cmd *cobra.Command, args []string) error {
	s, ports, err := q.target(cmd, args)
	if err != nil {
		return err
	}
	clients := append(s.held.Named(), s.accounts...)
	slices.Sort(clients)
	clients = append(slices.Compact(clients), s.held.Identity("another-namespace", "another"), "")
	if q.principal != "" {
		clients = []string{q.principal}
	}
	var all []decision
	for _, port := range ports {
		r, err := q.request(cmd, s, args, port)
		if err != nil {
			return err
		}
		for _, client := range clients {
			all = append(all, assumed(s, r, client))
		}
	}
	return q.print(cmd, args, all)
}

// print prints decisions. With -o name it prints the clients that may call the workload.
func (q *authzQuery) print(cmd *cobra.Command, args []string, all []decision) error {
	r, table := rows{value: all}, [][]string{{"PORT", "CLIENT", "ANSWER", "CONFIDENCE", "BY"}}
	for _, v := range all {
		answer, client := "denied", v.Client
		if v.PlainText {
			client += ", in plain text"
		}
		if v.Allowed {
			answer = "allowed"
			r.names = append(r.names, v.Client)
		}
		table = append(table, []string{strconv.FormatUint(uint64(v.Port), 10), client, answer, v.Confidence, v.By})
	}
	r.table = func(w io.Writer, _ bool) error { return show.Table(w, table) }
	if path := args[len(args)-1]; len(all) > 0 && strings.HasPrefix(path, "/") {
		words := []string{"why", "--to", q.to, fmt.Sprintf("http://workload:%d%s", all[0].Port, path)}
		if client := all[0].Client; client != noCertificate && !all[0].PlainText {
			words = append(words, "--identity", client)
		}
		if q.to != "" {
			r.next = nextIs("each step of the first decision", words...)
		}
	}
	return q.format.write(cmd, r)
}

// accountsIn returns the sorted SPIFFE IDs of all service accounts in a snapshot of the records. It reads the
// ServiceAccounts, the endpoints and the workloads.
func accountsIn(snapshot *mirror.Snapshot, held *walk.Messages) []string {
	seen := map[string]bool{}
	add := func(namespace, account string) {
		if namespace != "" && account != "" {
			seen[held.Identity(namespace, account)] = true
		}
	}
	for r := range snapshot.All(model.KindServiceAccount) {
		add(r.Meta().Key.Namespace, r.Meta().Key.Name)
	}
	for r := range snapshot.All(model.KindEndpoints) {
		for _, e := range r.(*model.Endpoints).Spec.GetEndpoints() {
			add(cmp.Or(e.GetNamespace(), r.Meta().Key.Namespace), e.GetServiceAccount())
		}
	}
	for r := range snapshot.All(model.KindWorkload) {
		add(r.Meta().Key.Namespace, r.(*model.Workload).Spec.GetEndpoint().GetServiceAccount())
	}
	return slices.Sorted(maps.Keys(seen))
}
