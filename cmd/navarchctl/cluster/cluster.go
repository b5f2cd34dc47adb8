// Package cluster finds the replicas of a control plane in a Kubernetes cluster, by the labels that istioctl uses. It
// connects to ports of the replicas' Pods through the API server, as kubectl port-forward does.
//
// Owns: the flags that select the cluster; connections to Pods, until they are closed.
// Reads: kubeconfigs, Pods of the control plane's namespace.
// Never: writes to a cluster, except that Token may create a token; listens on a port of this machine (other users
// could connect to it).
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"istio.io/api/label"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"navarch.io/navarch/cmd/navarchctl/progress"
	"navarch.io/navarch/store/apiserver"
)

// Flags are the flags that select a cluster and its control plane.
type Flags struct {
	// Kubeconfig is a path; empty: the paths in $KUBECONFIG, else ~/.kube/config. Context is the name of a context in
	// the kubeconfig; empty: the current context.
	Kubeconfig, Context string
	Namespace           string // namespace of the control plane
	Revision            string // revision of the control plane; empty: all revisions
}

// Bind adds all flags to s. They have the same names as in istioctl.
func (f *Flags) Bind(s *pflag.FlagSet) {
	f.BindCluster(s)
	s.StringVarP(&f.Revision, "revision", "r", "", "Revision of the control plane: the label istio.io/rev of its Pods (default: all).")
}

// BindCluster adds all flags except --revision, for commands in which --revision has another meaning.
func (f *Flags) BindCluster(s *pflag.FlagSet) {
	f.BindKubeconfig(s)
	s.StringVarP(&f.Namespace, "istio-namespace", "i", "istio-system", "Namespace of the control plane.")
}

// BindKubeconfig adds --kubeconfig and --context only.
func (f *Flags) BindKubeconfig(s *pflag.FlagSet) {
	s.StringVar(&f.Kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster (default: $KUBECONFIG, else ~/.kube/config).")
	s.StringVar(&f.Context, "context", "", "Context of the kubeconfig (default: its current one).")
}

// Given reports whether a kubeconfig is selected. This is the case if --kubeconfig, --context or $KUBECONFIG is set,
// even to a file that does not exist. It is also the case if a file exists at the default path.
func (f *Flags) Given() bool {
	if f.Kubeconfig != "" || f.Context != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return true
	}
	_, err := os.Stat(clientcmd.RecommendedHomeFile)
	return err == nil
}

// Kubeconfigs returns the paths that are read if --kubeconfig is not set: those in $KUBECONFIG, else the default path.
func Kubeconfigs() []string {
	return clientcmd.NewDefaultClientConfigLoadingRules().Precedence
}

// Contexts returns the sorted names of the contexts in a kubeconfig. If the path is empty, it reads $KUBECONFIG or the
// default path. It returns nil if the kubeconfig cannot be read or has no context.
func Contexts(kubeconfig string) []string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Contexts))
}

// Cluster gives access to a cluster and its control plane. Make it with Flags.Open. It is safe for concurrent use.
type Cluster struct {
	// The field Context of Flags is the name of the context in use. It is empty without a context, as with a Pod's
	// service account.
	Flags
	API    *apiserver.Client // client of the API server; not nil
	config *rest.Config
}

// Open reads the kubeconfig and returns the cluster. In a Pod without a kubeconfig it uses the Pod's service account.
// It sends no request. It returns an error if the kubeconfig is missing, invalid, or lacks the context. Each error
// names --kubeconfig; most also name the context or the paths that were tried.
func (f *Flags) Open() (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	c := &Cluster{Flags: *f}
	c.Context = cmp.Or(f.Context, raw.CurrentContext)
	if c.config, err = loader.ClientConfig(); clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("--kubeconfig: no file at %s", strings.Join(rules.GetLoadingPrecedence(), ", "))
	} else if err != nil {
		return nil, fmt.Errorf("--kubeconfig, context %q: %w", c.Context, err)
	}
	reported := rest.CopyConfig(c.config)
	reported.Wrap(progress.Transport)
	if c.API, err = apiserver.Of(reported); err != nil {
		return nil, fmt.Errorf("--kubeconfig, context %q: %w", c.Context, err)
	}
	return c, nil
}

// String returns "context NAME" for messages, or "the API server URL" if there is no context.
func (c *Cluster) String() string {
	if c.Context == "" {
		return "the API server " + c.API.Address()
	}
	return "context " + c.Context
}

const (
	replicaApp  = "istiod"   // label app of Pods that serve proxies; istioctl and Kiali use this label
	processName = "navarchd" // label app.kubernetes.io/name of all Pods of the control plane
)

// Selector returns the label selector of the Pods that Replicas lists.
func (c *Cluster) Selector() string { return c.selector("app=" + replicaApp) }

func (c *Cluster) selector(s string) string {
	if c.Revision != "" {
		s += "," + label.IoIstioRev.Name + "=" + c.Revision
	}
	return s
}

// Replicas lists the Pods of the control plane that serve proxies. The list ready, sorted by name, has the ready Pods.
// It also has the Pods that are being deleted but still run, because proxies may still be connected to them. The list
// others has a text "NAME (REASON)" for each remaining Pod, in no particular order. The caller must close the Pods that
// it has dialled. Replicas returns an error if the request fails, or if no Pod is ready. In both cases the lists are
// nil. The error names the context or the API server, the namespace and the labels.
func (c *Cluster) Replicas(ctx context.Context) (ready []*Pod, others []string, err error) {
	return c.ready(ctx, c.Selector())
}

// Processes lists all Pods of the control plane, whatever their role. Its results and errors have the same form as
// those of Replicas.
func (c *Cluster) Processes(ctx context.Context) (ready []*Pod, others []string, err error) {
	return c.ready(ctx, c.Selector(), c.selector("app.kubernetes.io/name="+processName))
}

// ready lists the Pods that match at least one of the selectors, each once.
func (c *Cluster) ready(ctx context.Context, selectors ...string) (ready []*Pod, others []string, err error) {
	where := fmt.Sprintf("%s, namespace %s: Pods with the labels %s", c, c.Namespace, strings.Join(selectors, " or "))
	seen := map[string]bool{}
	for _, selector := range selectors {
		var all corev1.PodList
		path := "/api/v1/namespaces/" + url.PathEscape(c.Namespace) + "/pods?labelSelector=" + url.QueryEscape(selector)
		if err := c.API.Do(ctx, http.MethodGet, path, nil, &all); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", where, err)
		}
		for i := range all.Items {
			pod := &all.Items[i]
			if seen[pod.Name] {
				continue
			}
			seen[pod.Name] = true
			if why := Unready(pod); why != "" && !draining(pod) {
				others = append(others, pod.Name+" ("+why+")")
				continue
			}
			ready = append(ready, c.Pod(pod))
		}
	}
	if len(ready) == 0 {
		if len(others) == 0 {
			return nil, nil,
				fmt.Errorf("%s: no such Pod: select others with --context, --istio-namespace and --revision, or use --server", where)
		}
		return nil, nil, fmt.Errorf("%s: none is ready: %s", where, strings.Join(others, ", "))
	}
	slices.SortFunc(ready, func(a, b *Pod) int { return cmp.Compare(a.Name, b.Name) })
	return ready, others, nil
}

// draining reports whether a Pod is being deleted and still runs.
func draining(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// Unready returns the reason why a Pod accepts no new connections: the Pod is being deleted, or is not ready. It
// returns "" for a Pod that accepts connections.
func Unready(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return strings.ToLower(cmp.Or(string(pod.Status.Phase), "unknown")) + ", not ready"
}
