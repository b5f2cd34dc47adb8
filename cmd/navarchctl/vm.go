package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/admit/inject"
)

// vmOptions are the flags of vm configure, named as in `istioctl x workload entry configure`.
type vmOptions struct {
	file, name, namespace, output            string
	cluster, ingressIP, ingressService       string
	internalIP, externalIP, revision, system string
	duration                                 int64 // seconds
	register, captureDNS                     bool

	kubeconfig, dataDir, meshConfig string
}

func vmCommand() *cobra.Command {
	o := &vmOptions{}
	configure := &cobra.Command{
		Use:   "configure -f WORKLOADGROUP.yaml --output DIR",
		Short: "Write the files that an agent on a machine starts with",
		Long: `Writes cluster.env, mesh.yaml, root-cert.pem, hosts and istio-token, as istioctl x workload entry configure does, from a WorkloadGroup.
The folder and the token in it are for their owner alone.`,
		Example: `  # Kubernetes: the token is asked of the API server.
  navarchctl vm configure --kubeconfig ~/.kube/config --name vms --namespace shop --autoregister --output vm

  # Files: the token is of navarchd's own issuer.
  navarchctl vm configure -f workloadgroup.yaml --data-dir out/demo/data --autoregister --output vm`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.configure(cmd.Context(), cmd.ErrOrStderr()) },
	}
	f := configure.Flags()
	f.StringVarP(&o.file, "file", "f", "", "File of the WorkloadGroup (default: the one of --name and --namespace at the API server).")
	f.StringVar(&o.name, "name", "", "Name of the WorkloadGroup.")
	f.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the WorkloadGroup; of a file that names none, too.")
	f.StringVarP(&o.output, "output", "o", "", "Folder to write to; it is made where it is not there.")
	f.StringVar(&o.cluster, "clusterID", "Kubernetes", "Name of the cluster that the machine is of (navarchd --cluster-id).")
	f.StringVar(&o.ingressIP, "ingressIP", "", "Address at which the machine reaches the control plane, for the file hosts.")
	f.StringVar(&o.ingressService, "ingressService", "istio-eastwestgateway",
		"Service (NAME or NAME.NAMESPACE) whose address that is, without --ingressIP.")
	f.Int64Var(&o.duration, "tokenDuration", 3600, "How long the token is valid, seconds.")
	f.StringVar(&o.revision, "revision", "", "Revision of the control plane.")
	f.StringVar(&o.system, "istioNamespace", "istio-system", "Namespace of the control plane.")
	f.BoolVar(&o.register, "autoregister", false,
		"The machine registers itself: a WorkloadEntry is made of the group when its agent connects.")
	f.BoolVar(&o.captureDNS, "capture-dns", true,
		"The agent answers DNS (navarch-agent redirect or istio-iptables hands it what the machine asks).")
	f.StringVar(&o.internalIP, "internalIP", "", "Address of the machine.")
	f.StringVar(&o.externalIP, "externalIP", "", "Address at which others reach the machine, where that is not its own.")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster; for files: none.")
	f.StringVar(&o.dataDir, "data-dir", "", "navarchd's data directory, without a cluster: root and token come from it.")
	f.StringVar(&o.meshConfig, "mesh-config", "", "File of the mesh configuration, without a cluster (default: none).")
	cmd := &cobra.Command{Use: "vm", Short: "Machines outside of Kubernetes",
		Example: "  navarchctl vm configure -f workloadgroup.yaml --data-dir out/demo/data --output vm"}
	cmd.AddCommand(configure)
	return cmd
}

// vmSource provides the data that the flags do not state.
type vmSource interface {
	group(ctx context.Context, namespace, name string) ([]byte, error) // the WorkloadGroup as JSON or YAML
	mesh(ctx context.Context) ([]byte, error)                          // MeshConfig as YAML; may be empty
	roots(ctx context.Context, namespace string) ([]byte, error)       // certificates as PEM
	token(ctx context.Context, namespace, account string, ttl time.Duration) (string, error)
	ingress(ctx context.Context) string // address of the control plane for machines; empty: unknown
}

func (o *vmOptions) configure(ctx context.Context, say io.Writer) error {
	switch {
	case o.file == "" && (o.name == "" || o.namespace == "" || o.kubeconfig == ""):
		return fmt.Errorf("want --file, or --kubeconfig with --name and --namespace")
	case o.output == "":
		return fmt.Errorf("want --output")
	case o.internalIP != "" && o.externalIP != "":
		return fmt.Errorf("--internalIP and --externalIP: want one of them")
	case (o.kubeconfig == "") == (o.dataDir == ""):
		return fmt.Errorf("want one of --kubeconfig and --data-dir: the token comes from there")
	}
	for flag, address := range map[string]string{"ingressIP": o.ingressIP, "internalIP": o.internalIP, "externalIP": o.externalIP} {
		if _, err := netip.ParseAddr(address); address != "" && err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	source, err := o.source()
	if err != nil {
		return err
	}
	group, err := o.readGroup(ctx, source)
	if err != nil {
		return err
	}
	files, err := o.files(ctx, source, group, say)
	if err != nil {
		return err
	}
	return writeFiles(o.output, files)
}

// vmGroup contains the fields of a WorkloadGroup that are used.
type vmGroup struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
	spec *networkingv1.WorkloadGroup
}

// readGroup reads the WorkloadGroup. The result has a name, a namespace, a template and a service account.
func (o *vmOptions) readGroup(ctx context.Context, source vmSource) (*vmGroup, error) {
	var text []byte
	var err error
	if o.file != "" {
		text, err = os.ReadFile(o.file)
	} else {
		text, err = source.group(ctx, o.namespace, o.name)
	}
	if err != nil {
		return nil, fmt.Errorf("the WorkloadGroup: %w", err)
	}
	g := &vmGroup{spec: &networkingv1.WorkloadGroup{}}
	if err := yaml.Unmarshal(text, g); err != nil {
		return nil, fmt.Errorf("the WorkloadGroup: %w", err)
	}
	if len(g.Spec) > 0 {
		if err := g.spec.UnmarshalJSON(g.Spec); err != nil {
			return nil, fmt.Errorf("the WorkloadGroup: spec: %w", err)
		}
	}
	g.Metadata.Namespace = cmp.Or(g.Metadata.Namespace, o.namespace)
	if g.Kind != "WorkloadGroup" || g.Metadata.Name == "" || g.Metadata.Namespace == "" {
		return nil, fmt.Errorf("%s: want a WorkloadGroup with a name and a namespace (--namespace), not %s %q of namespace %q",
			cmp.Or(o.file, "the API server"), g.Kind, g.Metadata.Name, g.Metadata.Namespace)
	}
	if g.spec.Template == nil {
		g.spec.Template = &networkingv1.WorkloadEntry{}
	}
	g.spec.Template.ServiceAccount = cmp.Or(g.spec.Template.ServiceAccount, "default")
	return g, nil
}

// vmFile is one file to write. If secret is true, only the file's owner can read it.
type vmFile struct {
	name, text string
	secret     bool
}

// files returns all files of a machine in the order of writing, with the token last. It prints a note if no address of
// the control plane is known.
func (o *vmOptions) files(ctx context.Context, source vmSource, g *vmGroup, say io.Writer) ([]vmFile, error) {
	mesh, err := source.mesh(ctx)
	if err != nil {
		return nil, fmt.Errorf("mesh configuration: %w", err)
	}
	proxy, err := o.proxyConfig(g, mesh)
	if err != nil {
		return nil, err
	}
	meshYAML, err := yaml.Marshal(map[string]any{"defaultConfig": proxy})
	if err != nil {
		return nil, err
	}
	roots, err := source.roots(ctx, g.Metadata.Namespace)
	if err != nil {
		return nil, fmt.Errorf("root certificates: %w", err)
	}
	hosts := ""
	if address := cmp.Or(o.ingressIP, source.ingress(ctx)); address != "" {
		hosts = address + " " + o.host() + "\n"
	} else {
		fmt.Fprintf(say, "no address of the control plane is known for the file hosts: the machine has to resolve %s otherwise (--ingressIP)\n",
			o.host())
	}
	token, err := source.token(ctx, g.Metadata.Namespace, g.spec.Template.ServiceAccount, time.Duration(o.duration)*time.Second)
	if err != nil {
		return nil, fmt.Errorf("a token of service account %s/%s: %w", g.Metadata.Namespace, g.spec.Template.ServiceAccount, err)
	}
	return []vmFile{{name: "cluster.env", text: o.environment(g, proxy)},
		{name: "mesh.yaml", text: string(meshYAML)}, {name: "root-cert.pem", text: string(roots)},
		{name: "hosts", text: hosts}, {name: "istio-token", text: token, secret: true}}, nil
}

// writeFiles creates the folder if it is missing, sets its mode to 0700, and replaces existing files of the same names.
func writeFiles(dir string, files []vmFile) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		mode := os.FileMode(0o644)
		if f.secret {
			mode = 0o600
		}
		path := filepath.Join(dir, f.name)
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = file.WriteString(f.text)
		if closing := file.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// revisioned reports whether a revision other than the default one is stated. For such a revision, cluster.env also has
// the address of the CA, as with istioctl.
func (o *vmOptions) revisioned() bool { return o.revision != "" && o.revision != "default" }

// host returns the control plane's DNS name, which contains the revision unless it is the default one.
func (o *vmOptions) host() string {
	return inject.NameOf("istiod", o.revision) + "." + o.system + ".svc"
}

// shellWord returns s as one word for a POSIX shell, quoted if necessary.
func shellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.,:/@%+=", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}

// environment returns cluster.env: the proxy's proxyMetadata, overridden by the variables that istioctl writes.
func (o *vmOptions) environment(g *vmGroup, proxy map[string]any) string {
	ports := make([]string, 0, len(g.spec.Template.Ports))
	for _, name := range slices.Sorted(maps.Keys(g.spec.Template.Ports)) {
		ports = append(ports, fmt.Sprint(g.spec.Template.Ports[name]))
	}
	exclude := "22,15090,15021"
	switch status, _ := proxy["statusPort"].(float64); status {
	case 15090, 15021:
	case 0:
		exclude += ",15020"
	default:
		exclude += fmt.Sprintf(",%d", int(status))
	}
	all := map[string]string{}
	metadata, _ := proxy["proxyMetadata"].(map[string]any)
	for k, v := range metadata {
		all[k] = fmt.Sprint(v)
	}
	maps.Copy(all, map[string]string{"ISTIO_INBOUND_PORTS": cmp.Or(strings.Join(ports, ","), "*"), "ISTIO_NAMESPACE": g.Metadata.Namespace,
		"ISTIO_SERVICE":      g.Metadata.Name + "." + g.Metadata.Namespace,
		"ISTIO_SERVICE_CIDR": "*", "ISTIO_LOCAL_EXCLUDE_PORTS": exclude, "SERVICE_ACCOUNT": g.spec.Template.ServiceAccount})
	if o.revisioned() {
		all["CA_ADDR"] = o.host() + ":15012"
	}
	if address := cmp.Or(o.internalIP, o.externalIP); address != "" {
		all["ISTIO_SVC_IP"] = address
	}
	if o.externalIP != "" {
		all["REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION"] = "true"
	}
	var out strings.Builder
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&out, "%s=%s\n", k, shellWord(all[k]))
	}
	return out.String()
}
