// Package check examines a cluster for somebody who installs a control plane, or who looks for what is wrong with one: the API server, rights,
// definitions of Istio's kinds, and of each revision the leader, the replicas, webhooks, clocks, etcd, and whether a workload would get a
// certificate and its configuration.
//
// Owns: the list of checks, and the text of each result.  Reads: the API server, replicas' pages, their secure address.  Never: changes
// anything, except that the API server issues a token, valid for a quarter of an hour, for the check itself. No certificate is issued: a
// rotation of the mesh's roots waits for the holders of certificates.
package check

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/apiserver"
)

// Status is what came of one line.
type Status string

// The outcomes, from the best to the worst. Unknown: it could not be looked at, such as for a right that the caller lacks.
const (
	OK      Status = "ok"
	Unknown Status = "unknown"
	Warning Status = "warning"
	Failure Status = "failure"
)

// Result is one line: what was looked at, what was found, and, unless all is well, what to do.
type Result struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Do     string `json:"do,omitempty"`
}

// Failed says whether one of them is a failure.
func Failed(all []Result) bool {
	for _, r := range all {
		if r.Status == Failure {
			return true
		}
	}
	return false
}

// Replica is one that is asked.
type Replica struct {
	Name       string // for messages
	Monitoring int    // port of its pages
	Client     *http.Client
	Dial       func(ctx context.Context, port int) (net.Conn, error)
}

// Config says which control plane is examined, and how.
type Config struct {
	API                 *apiserver.Client
	Namespace, Revision string // of the control plane; without a revision each one that the namespace has
	// Pre: before there is a control plane. Replicas are not looked for.
	Pre bool
	// Replica connects to a Pod of the control plane. The caller of Run closes what it returns.
	Replica func(*corev1.Pod) Replica
}

// checker collects the results about a cluster, or about one revision in it.
type checker struct {
	Config
	prefix  string // of each result: the revision, where the namespace has several
	results []Result
	pods    []corev1.Pod       // of the revision
	made    map[string]Replica // by the names of their Pods
}

// patience is how long one question may take.
const patience = 20 * time.Second

// Run examines everything in turn. What cannot be found out is a result, too, and no error.
func Run(ctx context.Context, c Config) []Result {
	k := &checker{Config: c, made: map[string]Replica{}}
	k.apiServer(ctx)
	k.definitions(ctx)
	if c.Pre {
		k.installer(ctx)
		k.others(ctx)
		return k.results
	}
	pods, err := k.controlPlane(ctx)
	if err != nil {
		k.cannot("replicas", err)
		return k.results
	}
	for _, revision := range sorted(pods) {
		one := &checker{Config: c, pods: pods[revision], made: k.made}
		if one.Revision = revision; len(pods) > 1 {
			one.prefix = "revision " + revision + ", "
		}
		one.ofRevision(ctx)
		k.results = append(k.results, one.results...)
	}
	k.abandoned(ctx, pods)
	return k.results
}

// ofRevision examines one revision, whose Pods are known.
func (k *checker) ofRevision(ctx context.Context) {
	k.replicas()
	k.rights(ctx)
	k.leader(ctx)
	k.pages(ctx)
	k.size(ctx)
	k.webhooks(ctx)
	k.join(ctx)
}

func (k *checker) say(check string, status Status, found, do string) {
	k.results = append(k.results, Result{Check: k.prefix + check, Status: status, Found: found, Do: do})
}

// get reads a JSON object of the API server.
func (k *checker) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.API.Do(ctx, http.MethodGet, path, nil, into)
}

// cannot is the line of what the API server does not answer: a right that the caller lacks is not known of the control plane.
func (k *checker) cannot(check string, err error) {
	if apiserver.IsStatus(err, http.StatusForbidden) || apiserver.IsStatus(err, http.StatusUnauthorized) {
		k.say(check, Unknown, "you may not see it: "+err.Error(), "ask somebody who may, or look as another user (--context)")
		return
	}
	k.say(check, Failure, err.Error(), "the API server must answer this")
}

// revision is the name of the revision that is looked at.
func (k *checker) revision() string {
	if k.Revision == "" {
		return "default"
	}
	return k.Revision
}

// oldest is the minor version of the oldest Kubernetes that the chart is for (kubeVersion of Chart.yaml).
const oldest = 31

func (k *checker) apiServer(ctx context.Context) {
	const check = "API server"
	var version struct{ Major, Minor, GitVersion string }
	if err := k.get(ctx, "/version", &version); err != nil {
		k.say(check, Failure, err.Error(), "see that the kubeconfig's server can be reached, and that its user is known there")
		return
	}
	minor, err := strconv.Atoi(strings.TrimRight(version.Minor, "+"))
	switch {
	case err != nil || version.Major != "1":
		k.say(check, Warning, "Kubernetes "+version.GitVersion+", a version that is not known here", "use Kubernetes 1."+strconv.Itoa(oldest)+" or later")
	case minor < oldest:
		k.say(check, Failure, "Kubernetes "+version.GitVersion, "use Kubernetes 1."+strconv.Itoa(oldest)+" or later, which the chart needs")
	default:
		k.say(check, OK, "Kubernetes "+version.GitVersion+" at "+k.API.Address(), "")
	}
	k.clock(ctx)
}

// tolerated is how far clocks may be apart, which is what the CA believes (store/clock.Tolerance).
const tolerated = 2 * time.Minute

// clock compares this machine's clock with the API server's.
func (k *checker) clock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said, took, err := k.API.Date(ctx)
	if err != nil {
		k.say("clock of the API server", Unknown, err.Error(), "")
		return
	}
	k.compare("clock of the API server", said, took)
}

// compare judges a time that somebody said, in whole seconds that had begun, in an answer that took so long.
func (k *checker) compare(check string, said time.Time, took time.Duration) {
	apart := time.Until(said.Add(time.Second/2)).Abs() - took
	if apart > tolerated {
		k.say(check, Failure, "it is "+apart.Round(time.Second).String()+" apart from this machine's", "set both clocks right: certificates begin and end by them")
		return
	}
	k.say(check, OK, "it agrees with this machine's to "+max(apart, time.Second).Round(time.Second).String(), "")
}
