package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/walk"
)

// question contains the options of the command why.
type question struct {
	walks
	client
	from, to string // --from and --to: proxies of the client and of the server
	at       string // --address
	flags    string // --flags
	host     string // --host
	log      string // --log
	clusters string // --clusters
	format   output
}

func whyCommand() *cobra.Command {
	q := &question{}
	cmd := &cobra.Command{
		Use:   "why {--from|--to} NAME[.NAMESPACE]|KIND/NAME|NODE.json|DUMP.json [METHOD] URL",
		Short: "Follow a request through proxies: listener, route, policy, cluster, endpoints",
		Long: `Follows one request through the configuration that a proxy was sent (or has: --envoy, --file), as Envoy would, and prints each
decision: the listener, the filter chain, the policies, the first route that matches, the clusters and their endpoints. --from is the
proxy of the workload that calls; --to is the proxy of the workload that is called, or a gateway. With both, the request is followed
through the client's proxy, the transport security between them, and the server's proxy.

The last lines sum up the fate of the request, say how certain that is, and name the next command. certain: the configuration decides.
likely: state that only Envoy knows may differ (ejected endpoints, open connections), or a token was not verified. possible: an
authorization service, a rate limit or an extension decides.

Which endpoints are ejected is read from the Envoy of --envoy, from --clusters, or from the Envoy in the Pod by way of the API server,
if a kubeconfig is used. Otherwise it is unknown.

--log reads a line of a proxy's access log in Istio's default format: it explains the line, and with --from or --to follows its
request. --flags explains Envoy's response flags, and with --host also follows a request to that host (GET, or as a URL says).

With -o json: {outcome, status, grpc_status, summary, confidence, doubts, policy, refusal, problems, steps: [{type, resource, text,
passed: [{route, index, why}], more_passed}], to: [{cluster, weight, endpoints, ejected, ejected_known, tls}], mirrors}; with --from and
--to {client, tls, cluster, endpoint, server, summary, confidence, doubts}.`,
		Example: `  # Where does this request of web-0 go?
  navarchctl why --from web-5d4f8c7b9-aaaaa.shop GET http://catalog.shop.svc.cluster.local:8000/items -H 'end-user: jason'

  # From one proxy to the other.
  navarchctl why --from web-5d4f8c7b9-aaaaa.shop --to catalog-6b7d9f8c5-bbbbb.shop http://catalog.shop.svc.cluster.local:8000/items

  # From one Envoy to the other, with the certificates that they hold (curl localhost:15000/config_dump?include_eds at each).
  navarchctl why --from web.json --to catalog.json http://catalog.shop:8000/items

  # May the account web call catalog, with a token of these claims?
  echo '{"iss": "https://issuer.example"}' | \
    navarchctl why --to catalog-6b7d9f8c5-bbbbb.shop --identity spiffe://cluster.local/ns/shop/sa/web --jwt - http://catalog:8080/items

  # What the flags of a log line mean.
  navarchctl why --flags UF,URX

  # And which endpoints the proxy that logged them has for the host.
  navarchctl why --flags UH --host catalog.shop:8000 --from web-5d4f8c7b9-aaaaa.shop

  # Without a server.
  navarchctl why --config-dir deploy/demo/shop --from deploy/demo/node.json http://catalog.shop.svc.cluster.local:8000/items`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return q.run(cmd, args) },
	}
	q.bind(cmd)
	return cmd
}

func (q *question) bind(cmd *cobra.Command) {
	q.walks.bind(cmd)
	q.client.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&q.from, "from", "", "The proxy of the client.")
	f.StringVar(&q.to, "to", "", "The proxy of the server, or a gateway.")
	f.StringVar(&q.at, "address", "", "IP, IP:PORT or :PORT of the connection; at a gateway of its Service or Pod. Default: of the URL.")
	f.StringVar(&q.flags, "flags", "", "Response flags of Envoy to explain, separated by commas, as UH,URX.")
	f.StringVar(&q.host, "host", "", "With --flags: HOST[:PORT] or URL of the request, which is followed from --from or --to.")
	f.StringVar(&q.clusters, "clusters", "",
		"A saved /clusters?format=json of the (client's) Envoy, with its ejected endpoints; - is standard input.")
	f.StringVar(&q.log, "log", "", "A line of a proxy's access log, in Istio's default text format.")
	cmd.MarkFlagsMutuallyExclusive("flags", "log")
	q.completesProxies(cmd, "from", "to")
	q.format.bind(cmd, short, "json", "yaml")
}

// run explains response flags (--flags), explains a log line (--log), or follows a request.
func (q *question) run(cmd *cobra.Command, args []string) error {
	named := q.from+q.to != "" || q.local()
	switch {
	case q.host != "" && (q.flags == "" || !named):
		return errors.New("--host is the host of a request with --flags: it also needs --from or --to, the proxy that logged them")
	case q.flags != "" && len(args) > 0:
		return errors.New("--flags only explains flags: state the host by --host, or omit --flags to follow a URL")
	case q.clusters != "" && (q.flags != "" && q.host == "" || q.log != "" && !named):
		return errors.New("--clusters is for a request that is followed: it also needs --from or --to, and with --flags also --host")
	case q.flags != "":
		if err := q.explainFlags(cmd); err != nil || q.host == "" {
			return err
		}
		if args = []string{q.host}; !strings.Contains(q.host, "://") {
			args[0] = "http://" + q.host
		}
	case q.log != "" && len(args) > 0:
		return errors.New("--log contains the request: omit the URL")
	case q.log != "":
		return q.explainLog(cmd)
	case len(args) == 0:
		return errors.New("which request? [METHOD] URL, --log LINE, or --flags FLAGS")
	}
	request, err := requestOf(args, q.at)
	if err != nil {
		return err
	}
	if err := q.client.apply(cmd, &request); err != nil {
		return err
	}
	return q.follow(cmd, request)
}

// follow follows the request through one proxy, or through the proxies of client and server, and prints the result.
func (q *question) follow(cmd *cobra.Command, request walk.Request) error {
	if q.from != "" && q.to != "" {
		return q.between(cmd, request)
	}
	held, err := q.observed(cmd, q.from+q.to)
	if err != nil {
		return err
	}
	direction := walk.Outbound
	if q.to != "" {
		direction = walk.Inbound
	}
	result, request := held.follow(direction, request)
	found := q.problemsOf(cmd, held, suspectsOf(held, result, request))
	if q.format != short {
		out := walkOf(result)
		out.Problems = found
		return q.format.print(cmd.OutOrStdout(), out)
	}
	w := cmd.OutOrStdout()
	printSteps(w, "", result.Steps)
	printSummary(w, result.Summary(), result.Refusal, result.Confidence, result.Doubts)
	for _, line := range found {
		fmt.Fprintln(w, "problem: "+show.Printable(line))
	}
	if result.Refusal != nil && q.to != "" {
		q.printCheck(cmd, held, request, request.Port)
	} else {
		q.printNext(cmd, q.from+q.to, result)
	}
	return nil
}

// between follows the request from the proxy of the client to that of the server, and prints the result.
func (q *question) between(cmd *cobra.Command, request walk.Request) error {
	if q.local() {
		return errors.New("--from and --to name two proxies, but --envoy and --file name only one")
	}
	from, err := q.observed(cmd, q.from)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	to, err := q.proxy(cmd, q.to)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	if request.Identity != "" {
		from.Identity, request.Identity = request.Identity, ""
	}
	switch {
	case from.Identity == "":
		return fmt.Errorf("the service account of %s is not known: state it by --identity", q.from)
	case len(to.Addresses) == 0:
		return fmt.Errorf("the address of %s is not known: its node states no IP address", q.to)
	}
	from.address(walk.Outbound, &request)
	call := walk.Between(from.Peer, to.Peer, request)
	if q.format != short {
		return q.format.print(cmd.OutOrStdout(), callOf(call))
	}
	q.printCall(cmd, call)
	if call.Server == nil || call.Server.Refusal == nil {
		return nil
	}
	sent, port := request, uint32(0)
	if call.Client.Sent != nil {
		sent.Headers = call.Client.Sent
	}
	if at, err := netip.ParseAddrPort(call.Endpoint); err == nil {
		port = uint32(at.Port())
	}
	q.printCheck(cmd, to, sent, port)
	return nil
}

// printCall prints the steps at both proxies, and the transport security between them. If the request does not reach
// the server, there are no steps at the server. If a policy of the server refuses the request, printCall suggests no
// next command.
func (q *question) printCall(cmd *cobra.Command, call walk.Call) {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "client %s\n", show.Printable(q.from))
	printSteps(w, "  ", call.Client.Steps)
	if len(call.TLS) > 0 {
		fmt.Fprintln(w, "between them")
	}
	for _, line := range call.TLS {
		fmt.Fprintln(w, "  "+show.Printable(line))
	}
	decides, proxy := call.Client, q.from
	if call.Server != nil {
		fmt.Fprintf(w, "server %s\n", show.Printable(q.to))
		printSteps(w, "  ", call.Server.Steps)
		decides, proxy = *call.Server, q.to
	}
	level, doubts := call.Confidence()
	printSummary(w, call.Summary(), decides.Refusal, level, doubts)
	if call.Server == nil || decides.Refusal == nil {
		q.printNext(cmd, proxy, decides)
	}
}

func printSteps(w io.Writer, indent string, steps []walk.Step) {
	for _, step := range steps {
		fmt.Fprintln(w, indent+show.Printable(step.Text))
		for _, p := range step.Passed {
			fmt.Fprintln(w, indent+"  "+show.Printable(p.String()))
		}
		if step.MorePassed > 0 {
			fmt.Fprintf(w, "%s  nor %d more\n", indent, step.MorePassed)
		}
	}
}

// printSummary prints the summary, the policies that refuse the request, the confidence, and the reasons for doubt. The
// argument refusal is nil if no policy refuses the request.
func printSummary(w io.Writer, summary string, refusal *walk.Refusal, level walk.Confidence, doubts []string) {
	fmt.Fprintf(w, "\n%s\n", show.Printable(summary))
	if refusal != nil {
		fmt.Fprintf(w, "refused: %s\n", show.Printable(refusal.String()))
	}
	fmt.Fprintf(w, "confidence: %s", level)
	if len(doubts) > 0 {
		fmt.Fprintf(w, " (%s)", show.Printable(strings.Join(doubts, "; ")))
	}
	fmt.Fprintln(w)
}

// printNext suggests the command that names the objects behind the resource that decided.
func (q *question) printNext(cmd *cobra.Command, proxy string, result walk.Result) {
	isFile := strings.HasSuffix(proxy, ".json") && q.offline.configDir == "" // a dump, which explain cannot read
	if _, name := result.Deciding(); name != "" && proxy != "" && !q.local() && !isFile {
		goesOn(cmd, q.format, "which objects decided", "explain", "--proxy", proxy, name)
	}
}

// printCheck suggests the command that names the policy that refuses a request. The argument sent is the request as the
// server receives it. The command omits the port if it is 0, or if the server's ports are known and do not include it.
func (q *question) printCheck(cmd *cobra.Command, server *subject, sent walk.Request, port uint32) {
	if q.to == "" || q.local() {
		return
	}
	words := []string{"authz", "check", "--to", q.to}
	flag := func(name, value string) {
		if value != "" {
			words = append(words, name, value)
		}
	}
	if q.principal == "" {
		flag("--from", q.from)
	}
	flag("--identity", q.principal)
	flag("--client", q.address)
	flag("--client-certificate", q.shows)
	if q.token != "-" { // standard input has been read
		flag("--jwt", q.token)
	}
	for _, h := range q.headers {
		flag("--header", h)
	}
	if all := server.held.Ports(); port != 0 && (len(all) == 0 || slices.Contains(all, port)) {
		flag("--port", strconv.FormatUint(uint64(port), 10))
	}
	words = append(words, sent.Headers[":method"], sent.Scheme+"://"+sent.Headers[":authority"]+sent.Headers[":path"])
	goesOn(cmd, q.format, "which policy decides", words...)
}

// requestOf parses args, which is [METHOD] URL and must not be empty. If address is not empty, it replaces the IP
// address, the port, or both, of the URL. Its form is IP, IP:PORT or :PORT.
func requestOf(args []string, address string) (walk.Request, error) {
	method, text := "GET", args[len(args)-1]
	if len(args) == 2 {
		method = strings.ToUpper(args[0])
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return walk.Request{}, fmt.Errorf("URL %q: want SCHEME://HOST[:PORT][/PATH]", text)
	}
	r := walk.Request{Scheme: u.Scheme, Name: u.Hostname(),
		Port:    map[string]uint32{"http": 80, "h2c": 80, "https": 443, "tls": 443}[u.Scheme],
		Headers: map[string]string{":method": method, ":authority": u.Host, ":scheme": u.Scheme, ":path": u.RequestURI()}}
	if err := portOf(u.Port(), &r.Port); err != nil {
		return r, fmt.Errorf("URL %q: %w", text, err)
	}
	if r.Port == 0 {
		return r, fmt.Errorf("URL %q: scheme %s has no port of its own: state one", text, u.Scheme)
	}
	if ip, err := netip.ParseAddr(r.Name); err == nil {
		r.Address = ip.String()
	}
	if port, isPort := strings.CutPrefix(address, ":"); isPort && !strings.HasPrefix(port, ":") {
		err = portOf(port, &r.Port)
	} else if both, bad := netip.ParseAddrPort(address); bad == nil {
		r.Address, r.Port = both.Addr().String(), uint32(both.Port())
	} else if ip, bad := netip.ParseAddr(address); bad == nil {
		r.Address = ip.String()
	} else if address != "" {
		err = fmt.Errorf("%q: want IP, IP:PORT or :PORT", address)
	}
	if err != nil {
		return r, fmt.Errorf("--address: %w", err)
	}
	return r, nil
}

// portOf parses a port number and stores it. For an empty text it stores nothing and returns nil.
func portOf(text string, into *uint32) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %q: want 1 to 65535", text)
	}
	*into = uint32(n)
	return nil
}
