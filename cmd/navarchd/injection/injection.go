// Package injection follows the injection webhook's settings in the cluster: the ConfigMap
// istio-sidecar-injector[-REVISION], and the versions of the kubelets.
//
// Owns: the settings in use, and the reasons why newer settings cannot be used.
// Reads: one ConfigMap and the list of Nodes. In a process that does not read the stored records, the package also
// reads the mesh configuration and the ProxyConfigs from the cluster.
// Never: decides whether a Pod gets a proxy; replaces valid settings by invalid settings.
package injection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/status"
)

// NativeSidecars is the value of ENABLE_NATIVE_SIDECARS. It applies to Pods that do not state themselves whether the
// proxy becomes a sidecar container (a restartable init container).
type NativeSidecars string

// The values of ENABLE_NATIVE_SIDECARS. With NativeAuto a proxy becomes a sidecar container if all kubelets that may
// run the Pod are known to support sidecar containers. NativeOn means always, NativeOff never.
const (
	NativeAuto NativeSidecars = "auto"
	NativeOn   NativeSidecars = "true"
	NativeOff  NativeSidecars = "false"
)

// Set sets n to v. If v is not one of the three values, Set returns an error and leaves n unchanged.
func (n *NativeSidecars) Set(v string) error {
	switch one := NativeSidecars(v); one {
	case NativeAuto, NativeOn, NativeOff:
		*n = one
		return nil
	default:
		return errors.New("want auto, true or false")
	}
}

// Config configures an Injection. Namespace, Mesh, Follow and Log are required. Kubelets is required with NativeAuto.
// An empty Revision means "default". An empty Native means NativeOff.
type Config struct {
	Namespace, Revision, Cluster string // of this control plane; Cluster is the name of the cluster that it runs in
	Native                       NativeSidecars
	Mesh                         func() *meshv1alpha1.MeshConfig // returns the present configuration; nil while it is unknown
	Proxies                      inject.ProxyConfigs             // returns the present ProxyConfigs; nil: they are not used
	// Follow watches the ConfigMap until ctx ends, and passes each version to s. It calls failed with an error when
	// watching fails, and with nil when watching works again.
	Follow func(ctx context.Context, s status.Seen[corev1.ConfigMap], failed func(error)) error
	// Kubelets returns the versions of the kubelets of the cluster, by the names of their nodes. If Kubelets fails, the
	// versions that it returned before stay in use.
	Kubelets func(context.Context) (map[string]string, error)
	Pause    time.Duration // between two reads of the kubelets; 0: 30 s
	Log      *slog.Logger
}

// Name returns the name of the ConfigMap: istio-sidecar-injector, with -REVISION unless the revision is empty or
// default.
func (c Config) Name() string {
	if c.Revision == "" || c.Revision == "default" {
		return "istio-sidecar-injector"
	}
	return "istio-sidecar-injector-" + c.Revision
}

// Injection is the webhook's handler with the tasks that update its settings. Safe for concurrent use. The fields
// Config and Handler must not be changed.
type Injection struct {
	Config
	Handler *inject.Handler // answers the webhook's requests by the newest valid settings; never nil

	mu       sync.Mutex // guards the fields below; no other lock is taken under it
	version  status.Version
	unusable string            // the reason why the newest ConfigMap is not in use; empty: it is in use, or not read yet
	unread   string            // the reason why the ConfigMap cannot be read; empty: it can be read
	problems []string          // errors of templates that cannot be used
	kubelets map[string]string // versions of the kubelets by node; nil: not known yet
	unknown  string            // the reason why the last read of the versions failed; empty: it succeeded, or there was no read yet
}

// New returns an Injection. It sends no request. The Handler refuses Pods until the tasks have read a valid ConfigMap
// and Config.Mesh returns a configuration.
func New(c Config) *Injection {
	if c.Pause == 0 {
		c.Pause = 30 * time.Second
	}
	i := &Injection{Config: c}
	i.Handler = inject.NewHandler(c.Mesh, i.native, c.Proxies)
	return i
}

// Tasks returns the tasks that update the settings: one, or two with NativeAuto. The caller must run each once. A task
// ends with its context, or with an error of Config.Follow.
func (i *Injection) Tasks() []loop.Task {
	all := []loop.Task{{Name: "injection configuration", Run: func(ctx context.Context) error { return i.Follow(ctx, seen{i}, i.failed) }}}
	if i.Native == NativeAuto {
		all = append(all, loop.Task{Name: "versions of kubelets", Run: i.followKubelets})
	}
	return all
}

// Notes returns texts for operators. They state why the ConfigMap cannot be read or used, which of its templates cannot
// be used, and why the kubelets' versions cannot be read. nil: no such problem is known.
func (i *Injection) Notes() (all []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, note := range append([]string{i.unread, i.unusable, i.unknown}, i.problems...) {
		if note != "" {
			all = append(all, note)
		}
	}
	return all
}

// seen receives the versions of the ConfigMap.
type seen struct{ *Injection }

func (s seen) key() status.Key { return status.Key{Namespace: s.Namespace, Name: s.Name()} }

// Replace implements status.Seen.
func (s seen) Replace(all map[status.Key]status.Found[corev1.ConfigMap]) { s.use(all[s.key()]) }

// Observe implements status.Seen.
func (s seen) Observe(k status.Key, f status.Found[corev1.ConfigMap]) {
	if k == s.key() {
		s.use(f)
	}
}

// use adopts the present ConfigMap. A missing or invalid ConfigMap changes only the notes.
func (i *Injection) use(f status.Found[corev1.ConfigMap]) {
	source := "ConfigMap " + i.Namespace + "/" + i.Name()
	if f.Object == nil {
		i.refuse(source + " does not exist: the last valid configuration stays in effect, if there was one")
		return
	}
	i.mu.Lock()
	same := f.Version == i.version && f.Version != 0
	i.mu.Unlock()
	if same {
		return
	}
	config, err := inject.ParseConfig(source, f.Object.Data["config"], f.Object.Data["values"], os.Getenv)
	if err != nil {
		i.refuse(fmt.Sprintf("the last valid configuration stays in effect, if there was one: %v", err))
		return
	}
	i.Handler.Use(&inject.Settings{Config: config, Revision: i.Revision, Namespace: i.Namespace})
	var problems []string
	for _, err := range config.Problems() {
		problems = append(problems, err.Error())
		i.Log.Warn("a template for injection cannot be used", obs.KeyError, err)
	}
	i.Log.Info("injection configuration loaded", obs.KeyObject, source)
	i.mu.Lock()
	i.version, i.unusable, i.problems = f.Version, "", problems
	i.mu.Unlock()
}

func (i *Injection) refuse(why string) {
	i.mu.Lock()
	again := i.unusable == why
	i.unusable, i.version = why, 0
	i.mu.Unlock()
	if !again {
		i.Log.Error("injection configuration cannot be used", obs.KeyError, why)
	}
}

// failed records why the ConfigMap cannot be followed.
func (i *Injection) failed(err error) {
	why := ""
	if err != nil {
		why = fmt.Sprintf("ConfigMap %s/%s cannot be read: %v", i.Namespace, i.Name(), err)
	}
	i.mu.Lock()
	was := i.unread
	i.unread = why
	i.mu.Unlock()
	if was == "" && why != "" {
		i.Log.Warn("injection configuration cannot be read", obs.KeyError, err)
	}
}

func (i *Injection) followKubelets(ctx context.Context) error {
	for {
		i.lookAtKubelets(ctx)
		if err := loop.Pause(ctx, i.Pause); err != nil {
			return nil
		}
	}
}

// lookAtKubelets reads the kubelets' versions. After a failure the known versions stay in use.
func (i *Injection) lookAtKubelets(ctx context.Context) {
	kubelets, err := i.Kubelets(ctx)
	i.mu.Lock()
	was := i.unknown
	if err == nil {
		i.kubelets, i.unknown = kubelets, ""
	} else {
		i.unknown = fmt.Sprintf("the versions of the kubelets cannot be read, which decide whether proxies are sidecar containers: %v", err)
	}
	i.mu.Unlock()
	if err != nil && was == "" && ctx.Err() == nil {
		i.Log.Warn("the versions of the kubelets cannot be read", obs.KeyError, err)
	}
}

// native reports whether a Pod's proxy becomes a sidecar container. With NativeAuto the result is false for Pods of
// other clusters, whose kubelets are unknown here.
func (i *Injection) native(cluster, node string) bool {
	if i.Native != NativeAuto {
		return i.Native == NativeOn
	}
	if cluster != "" && cluster != i.Cluster {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return inject.KnowsSidecars(i.kubelets, node)
}

// Kubelets returns a function that reads the kubelet versions of a cluster's nodes, for Config.Kubelets. The errors of
// that function are those of apiserver.Client.Columns.
func Kubelets(api *apiserver.Client) func(context.Context) (map[string]string, error) {
	return func(ctx context.Context) (map[string]string, error) {
		rows, err := api.Columns(ctx, "/api/v1/nodes", "Name", "Version")
		all := map[string]string{}
		for _, row := range rows {
			all[row[0]] = row[1]
		}
		return all, err
	}
}
