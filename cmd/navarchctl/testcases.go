package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/walk"
)

// testFile is the content of a file of test cases.
type testFile struct {
	Cases []json.RawMessage `json:"cases"` // each is a testCase
}

// testCase is one request with its expected outcome. Without --envoy and --file, exactly one of From and To is
// stated.
type testCase struct {
	Name    string      `json:"name"`
	From    string      `json:"from"` // the proxy of the client
	To      string      `json:"to"`   // the proxy of the server, or a gateway
	Request testRequest `json:"request"`
	Want    testWant    `json:"want"`
}

type testRequest struct {
	Method   string            `json:"method"` // GET if empty
	URL      string            `json:"url"`
	Headers  map[string]string `json:"headers"`
	Address  string            `json:"address"`  // of the connection: IP, IP:PORT or :PORT, as for why --address
	Client   string            `json:"client"`   // IP address of the client
	Identity string            `json:"identity"` // SPIFFE ID of a client of the mesh
	Claims   map[string]any    `json:"claims"`   // claims of a token that is sent in the header authorization
}

// testWant contains the expected values. Fields that are not stated are not compared.
type testWant struct {
	Outcome string `json:"outcome"`
	// Status is the HTTP status that the proxy itself answers. It is 503 if no destination of the route can receive the
	// request.
	Status int `json:"status"`
	// Clusters are all clusters that may receive the request, in any order. Cluster states a single cluster.
	Cluster  string   `json:"cluster"`
	Clusters []string `json:"clusters"`
	Policy   string   `json:"policy"`
}

// tested is the result of a case.
type tested struct {
	Name string `json:"name"`
	Pass bool   `json:"pass"`
	// Why lists the differences from the expected values. It is empty if the case passes.
	Why     []string `json:"why,omitempty"`
	Summary string   `json:"summary"`
}

// caseRunner contains the flags and the state of the command test.
type caseRunner struct {
	walks
	format output
	known  map[string]*subject // proxies that were read, by name
}

func testCommand() *cobra.Command {
	q := &caseRunner{known: map[string]*subject{}}
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run cases of requests and their expected fates",
		Long: `Follows the request of each case through a proxy, and compares its fate with the expected one. The proxy holds what it was sent, or
with --config-dir what it would be sent. A file has

  cases:
  - name: jason gets v2
    from: web-0.shop              # the client's proxy; or to: the server's, or a gateway
    request: {method: GET, url: 'http://catalog.shop:8000/items', headers: {end-user: jason}}
    want: {cluster: 'outbound|8000|v2|catalog.shop.svc.cluster.local'}

request may have method, url, headers, address, client, identity and claims (of a token, which is not verified). want may have outcome
(forwarded, answered, closed, unserved, waiting), status, cluster or clusters, and policy. Only stated fields are compared.`,
		Example: `  navarchctl test deploy/demo/cases.yaml --config-dir deploy/demo/shop

  # In a pipeline, without a server.
  navarchctl test deploy/demo/cases.yaml --config-dir deploy/demo/shop -o junit`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return q.run(cmd, args) },
	}
	q.walks.bind(cmd)
	q.format.bind(cmd, short, wideFormat, "json", "yaml", nameFormat, "junit")
	return cmd
}

// parseCases decodes a file of cases. An error names the case and the field.
func parseCases(raw []byte) (all []testCase, err error) {
	var of testFile
	if err := yaml.UnmarshalStrict(raw, &of); err != nil {
		_, reason, is := strings.Cut(err.Error(), "decoding JSON: json: ")
		if !is {
			reason = err.Error()
		}
		return nil, fmt.Errorf("want YAML with the list cases: %s", reason)
	}
	for i, text := range of.Cases {
		var c testCase
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			var named struct{ Name string }
			_ = json.Unmarshal(text, &named) // without a name, the number identifies the case
			return nil, fmt.Errorf("cases[%d] %q: %w", i, named.Name, fieldError(err))
		}
		all = append(all, c)
	}
	return all, nil
}

// fieldError rewrites an error of the JSON decoder for authors of YAML. The new text names the field, the type of its
// value, and the wanted type.
func fieldError(err error) error {
	var typed *json.UnmarshalTypeError
	if !errors.As(err, &typed) {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	want := map[reflect.Kind]string{reflect.Slice: "a list", reflect.Map: "a map", reflect.Struct: "a map", reflect.String: "a string",
		reflect.Int: "a number"}[typed.Type.Kind()]
	return fmt.Errorf("%s: has a value of type %s, want %s", typed.Field, typed.Value, want)
}

func (q *caseRunner) run(cmd *cobra.Command, files []string) error {
	var all []tested
	failed := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		cases, err := parseCases(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if len(cases) == 0 {
			return fmt.Errorf("%s: cases: the list is empty", file)
		}
		for i, c := range cases {
			result, err := q.one(cmd, c)
			if err != nil {
				return fmt.Errorf("%s: cases[%d] %q: %w", file, i, c.Name, err)
			}
			if all = append(all, result); !result.Pass {
				failed++
			}
		}
	}
	if err := q.print(cmd, all, failed); err != nil {
		return err
	}
	if failed > 0 {
		return exitError{exitDenied, fmt.Sprintf("%d of %d cases failed", failed, len(all))}
	}
	return nil
}

// one runs a case. It fails if the case is invalid or if its proxy cannot be read. A case that does not pass is not an
// error: the result has the differences.
func (q *caseRunner) one(cmd *cobra.Command, c testCase) (tested, error) {
	if (c.From == "") == (c.To == "") && !q.local() {
		return tested{}, errors.New("want from or to: the proxy of the client or of the server")
	}
	if err := c.Want.check(); err != nil {
		return tested{}, err
	}
	s := q.known[c.From+c.To]
	if s == nil {
		var err error
		if s, err = q.proxy(cmd, c.From+c.To); err != nil {
			return tested{}, err
		}
		q.known[c.From+c.To] = s
	}
	r, err := c.Request.walk()
	if err != nil {
		return tested{}, err
	}
	direction := walk.Outbound
	if c.To != "" {
		direction = walk.Inbound
	}
	result, _ := s.follow(direction, r)
	out := tested{Name: cmp.Or(c.Name, cmp.Or(c.Request.Method, http.MethodGet)+" "+c.Request.URL),
		Summary: result.Summary(), Why: c.Want.differences(result)}
	out.Pass = len(out.Why) == 0
	return out, nil
}

// check returns an error for expectations that are empty, contradict each other, or name an unknown outcome.
func (w testWant) check() error {
	if w.Outcome == "" && w.Status == 0 && w.Cluster == "" && len(w.Clusters) == 0 && w.Policy == "" {
		return errors.New("want: outcome, status, cluster, clusters or policy has to be stated")
	}
	if w.Cluster != "" && len(w.Clusters) > 0 {
		return errors.New("want: cluster and clusters exclude each other")
	}
	for _, word := range outcomes {
		if w.Outcome == word || w.Outcome == "" {
			return nil
		}
	}
	return fmt.Errorf("want.outcome %q: want forwarded, answered, closed, unserved or waiting", w.Outcome)
}

// walk returns the request of a case.
func (t testRequest) walk() (walk.Request, error) {
	r, err := requestOf([]string{cmp.Or(t.Method, http.MethodGet), t.URL}, t.Address)
	if err != nil {
		return r, fmt.Errorf("request: %w", err)
	}
	for name, value := range t.Headers {
		if name = strings.ToLower(name); name == "host" {
			name = ":authority"
		}
		r.Headers[name] = value
	}
	if t.Claims != nil {
		token, err := walk.Unsigned(t.Claims)
		if err != nil {
			return r, fmt.Errorf("request.claims: %w", err)
		}
		r.Headers["authorization"] = "Bearer " + token
	}
	if t.Identity != "" && !strings.HasPrefix(t.Identity, "spiffe://") {
		return r, fmt.Errorf("request.identity %q: want spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT", t.Identity)
	}
	r.From, r.Identity, r.Time = t.Client, t.Identity, time.Now()
	return r, nil
}

// differences lists the fields of a result that differ from the expected values.
func (w testWant) differences(r walk.Result) (all []string) {
	differ := func(field string, got, want any) {
		all = append(all, fmt.Sprintf("%s %v, want %v", field, got, want))
	}
	if got := outcomes[r.Outcome]; w.Outcome != "" && got != w.Outcome {
		differ("outcome", got, w.Outcome)
	}
	if got := answeredStatus(r); w.Status != 0 && got != w.Status {
		differ("status", got, w.Status)
	}
	want := slices.Clone(w.Clusters)
	if w.Cluster != "" {
		want = []string{w.Cluster}
	}
	var got []string
	for _, to := range r.To {
		got = append(got, to.Cluster)
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) > 0 && !slices.Equal(got, want) {
		differ("clusters", got, want)
	}
	if w.Policy != "" && r.Policy != w.Policy {
		differ("policy", cmp.Or(r.Policy, "none"), w.Policy)
	}
	return all
}

// answeredStatus returns the HTTP status that the proxy itself answers. For a forwarded request it returns 503 if no
// destination can receive the request, and else 0, because the destination decides the status.
func answeredStatus(r walk.Result) int {
	if r.Outcome != walk.Forwarded || r.TCP {
		return r.Status
	}
	for _, to := range r.To {
		if to.Reach != walk.Missing && to.Reach != walk.Empty {
			return 0
		}
	}
	return http.StatusServiceUnavailable
}

// print prints the cases. With -o name it prints the names of the failed cases.
func (q *caseRunner) print(cmd *cobra.Command, all []tested, failed int) error {
	if q.format == "junit" {
		return printJUnit(cmd.OutOrStdout(), all, failed)
	}
	r := rows{value: all, table: func(w io.Writer, wide bool) error { return casesTable(w, all, failed, wide) }}
	for _, t := range all {
		if !t.Pass {
			r.names = append(r.names, t.Name)
		}
	}
	return q.format.write(cmd, r)
}

// casesTable prints a line for each case, with the differences of a failed case. If wide is set, it also prints the
// summaries of the other cases.
func casesTable(w io.Writer, all []tested, failed int, wide bool) error {
	for _, t := range all {
		switch {
		case !t.Pass:
			fmt.Fprintf(w, "FAIL  %s: %s\n      %s\n",
				show.Printable(t.Name), show.Printable(strings.Join(t.Why, "; ")), show.Printable(t.Summary))
		case wide:
			fmt.Fprintf(w, "ok    %s\n      %s\n", show.Printable(t.Name), show.Printable(t.Summary))
		default:
			fmt.Fprintf(w, "ok    %s\n", show.Printable(t.Name))
		}
	}
	_, err := fmt.Fprintf(w, "%d cases, %d failed\n", len(all), failed)
	return err
}

// junitSuite is the root element of a report in JUnit's format.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func printJUnit(w io.Writer, all []tested, failed int) error {
	suite := junitSuite{Name: "navarchctl test", Tests: len(all), Failures: failed}
	for _, t := range all {
		c := junitCase{Name: t.Name}
		if !t.Pass {
			c.Failure = &junitFailure{Message: strings.Join(t.Why, "; "), Text: t.Summary}
		}
		suite.Cases = append(suite.Cases, c)
	}
	raw, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, raw)
	return err
}
