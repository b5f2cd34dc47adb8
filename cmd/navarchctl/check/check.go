// Package check examines a cluster before the installation of a control plane, or examines a running control plane. It
// checks the API server, rights, the definitions of Istio's kinds, and gateways. For each revision it checks the
// leader, the replicas, webhooks, clocks, etcd, and whether a workload would get a certificate and its configuration.
//
// Owns: the list of checks, and the text of each result.
// Reads: the API server, and each replica's debug pages, CA and xDS server.
// Never: changes anything, except that the API server issues a token for the check, valid for a quarter of an hour. The
// check obtains no certificate, because a rotation of the mesh's roots would wait for the certificate's expiry.
package check

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/apiserver"
)

// Status is the outcome of one check.
type Status string

// The statuses, from the best to the worst.
const (
	OK      Status = "ok"      // no fault that needs attention
	Unknown Status = "unknown" // the check was not possible, for example because the caller lacks a right
	Warning Status = "warning" // a fault that needs attention
	Failure Status = "failure" // a severe fault
)

// Result is the result of one check, one line of the output.
type Result struct {
	// Check names the examined thing, for humans. If several revisions exist, the name begins with the revision that
	// the check is about.
	Check  string `json:"check"`
	Name   Name   `json:"name"` // kind of check
	Status Status `json:"status"`
	Limit  string `json:"limit"`        // required figure, as text (Limits)
	Figure string `json:"figure"`       // measured figure, as text; "within", "outside" or "unknown" if nothing was measured
	Found  string `json:"found"`        // the finding, for humans
	Do     string `json:"do,omitempty"` // advice, possibly also for an OK result; empty: no advice
	Remedy string `json:"remedy"`       // page and anchor of the remedy, PAGE#NAME; never empty
}

// Warned reports whether at least one result is a warning.
func Warned(all []Result) bool {
	return slices.ContainsFunc(all, func(r Result) bool { return r.Status == Warning })
}

// Failed reports whether at least one result is a failure.
func Failed(all []Result) bool {
	return slices.ContainsFunc(all, func(r Result) bool { return r.Status == Failure })
}

// Replica connects to the ports of one Pod of the control plane.
type Replica struct {
	Name       string       // for messages
	Monitoring int          // port of metrics and debug pages
	Client     *http.Client // must connect requests for http://localhost:PORT to PORT of the Pod
	// Dial must connect to a port of the Pod. The check closes the connection.
	Dial func(ctx context.Context, port int) (net.Conn, error)
}

// Config selects the control plane to examine.
type Config struct {
	API *apiserver.Client
	// Namespace and Revision select the control plane. An empty Revision selects all revisions, or with Pre the
	// revision "default".
	Namespace, Revision string
	// Pre selects the checks before an installation. Replicas are not examined.
	Pre bool
	// Upgrade is the version that is to be installed; empty: no upgrade. With Pre, Upgrade has no effect. Tool is the
	// version of this program, which is compared with Upgrade.
	Upgrade, Tool string
	// Replica returns the access to a Pod of the control plane. Run calls it at most once for each ready Pod, not
	// concurrently. The caller of Run must close the connections after Run. Replica may be nil only if Pre is true.
	Replica func(*corev1.Pod) Replica
}

// checker collects the results for a cluster, or for one revision of the control plane.
type checker struct {
	Config
	prefix  string // text that begins each result: the revision, if the namespace has several
	results []Result
	pods    []corev1.Pod       // Pods of the revision
	secrets map[string]string  // Secrets of gateways: maps "namespace/name" to a Gateway that names the Secret
	made    map[string]Replica // results of Config.Replica, by Pod name
}

// patience is the time limit of one request, and of a group of requests that belong together.
const patience = 20 * time.Second

// Run performs the checks that c selects, and returns their results in order. Errors, also that of an ended ctx, become
// results. If the control plane has no Pod, or its Pods cannot be listed, one result of NameReplicas replaces the
// checks of revisions. Some checks have no result if there is nothing to examine, for example without Gateways. Each
// request has a time limit of at most 20 s.
func Run(ctx context.Context, c Config) []Result {
	k := &checker{Config: c, made: map[string]Replica{}, secrets: map[string]string{}}
	k.apiServer(ctx)
	k.definitions(ctx)
	k.gateways(ctx)
	if c.Pre {
		k.installer(ctx)
		k.others(ctx)
		return k.results
	}
	pods, err := k.controlPlane(ctx)
	if err != nil {
		k.cannot(NameReplicas.of("replicas"), err)
		return k.results
	}
	for _, revision := range sorted(pods) {
		one := &checker{Config: c, pods: pods[revision], made: k.made, secrets: k.secrets}
		if one.Revision = revision; len(pods) > 1 {
			one.prefix = "revision " + revision + ", "
		}
		one.ofRevision(ctx)
		k.results = append(k.results, one.results...)
	}
	k.abandoned(ctx, pods)
	return k.results
}

// ofRevision examines the Pods of one revision.
func (k *checker) ofRevision(ctx context.Context) {
	k.replicas()
	k.rights(ctx)
	k.gatewaySecrets(ctx)
	k.leader(ctx)
	k.pages(ctx)
	k.size(ctx)
	k.webhooks(ctx)
	k.join(ctx)
	if k.Upgrade != "" {
		k.upgrade(ctx)
	}
}

// add adds a result.
func (k *checker) add(of subject, status Status, found, do string) {
	k.results = append(k.results, of.result(k.prefix, status, found, do))
}

// result returns the result of a check. The result's text begins with prefix. If the subject has no figure, the status
// determines the figure (map usual).
func (s subject) result(prefix string, status Status, found, do string) Result {
	return Result{Check: prefix + s.text, Name: s.name, Status: status, Limit: Limits[s.name], Figure: cmp.Or(s.figure, usual[status]),
		Found: found, Do: do, Remedy: Page + "#" + string(s.name)}
}

// get requests a path of the API server, and decodes the JSON response into a value.
func (k *checker) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.API.Do(ctx, http.MethodGet, path, nil, into)
}

// cannot adds the result for an error of the API server. If the caller lacks a right, the result's status is Unknown,
// because the error is no evidence about the control plane.
func (k *checker) cannot(check subject, err error) {
	if apiserver.IsStatus(err, http.StatusForbidden) || apiserver.IsStatus(err, http.StatusUnauthorized) {
		k.add(check, Unknown, "you lack the right to read this: "+err.Error(), "ask a user with this right, or use another user (--context)")
		return
	}
	k.add(check, Failure, err.Error(), "the API server must answer this")
}

// revision returns the name of the examined revision; "default" if Config.Revision is empty.
func (k *checker) revision() string {
	if k.Revision == "" {
		return "default"
	}
	return k.Revision
}

// oldest is the minor version of the oldest supported Kubernetes (kubeVersion of Chart.yaml).
const oldest = 31

// apiServer checks the version of the API server, and its clock.
func (k *checker) apiServer(ctx context.Context) {
	check := NameAPIServer.of("API server")
	var version struct{ Major, Minor, GitVersion string }
	if err := k.get(ctx, "/version", &version); err != nil {
		k.add(check, Failure, err.Error(), "see that the kubeconfig's server can be reached, and that its user is known there")
		return
	}
	check = check.at(version.GitVersion)
	minor, err := strconv.Atoi(strings.TrimRight(version.Minor, "+"))
	switch {
	case err != nil || version.Major != "1":
		k.add(check, Warning, "Kubernetes "+version.GitVersion+", a version that is not known here",
			"use Kubernetes 1."+strconv.Itoa(oldest)+" or later")
	case minor < oldest:
		k.add(check, Failure, "Kubernetes "+version.GitVersion, "use Kubernetes 1."+strconv.Itoa(oldest)+" or later, which the chart needs")
	default:
		k.add(check, OK, "Kubernetes "+version.GitVersion+" at "+k.API.Address(), "")
	}
	k.clock(ctx)
}

// tolerated is the difference of clocks that the CA tolerates (store/clock.Tolerance).
const tolerated = 2 * time.Minute

// clock compares this machine's clock with the API server's.
func (k *checker) clock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said, took, err := k.API.Date(ctx)
	if err != nil {
		k.add(NameClock.of("clock of the API server"), Unknown, err.Error(), "")
		return
	}
	k.compare(NameClock.of("clock of the API server"), said, took)
}

// compare compares a remote time with this machine's time. The argument said is the remote time in whole seconds,
// rounded down. The argument took is the duration of the request that returned the remote time.
func (k *checker) compare(check subject, said time.Time, took time.Duration) {
	apart := time.Until(said.Add(time.Second/2)).Abs() - took
	check = check.at(max(apart, 0).Round(time.Second).String())
	if apart > tolerated {
		k.add(check, Failure, "it is "+apart.Round(time.Second).String()+
			" apart from this machine's", "set both clocks right: certificates begin and end by them")
		return
	}
	k.add(check, OK, "it agrees with this machine's to "+max(apart, time.Second).Round(time.Second).String(), "")
}
