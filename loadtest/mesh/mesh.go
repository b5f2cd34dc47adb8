package mesh

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"

	"navarch.io/navarch/push/xds"
)

// Region is the region of all nodes.
const Region = "harbour"

// Cluster is the name of the Kubernetes cluster of all meshes.
const Cluster = "Kubernetes"

const (
	domain   = "cluster.local"
	region   = Region
	httpPort = 80
	tcpPort  = 9000
)

// Mesh is one synthetic mesh. It is immutable; Churn edits its folder.
type Mesh struct {
	Settings Settings

	spaces   []*namespace
	services []*service
	joining  []int // services in the order in which their proxies join
}

// namespace is one namespace with its services.
type namespace struct {
	index    int
	name     string
	services []*service
	sidecar  bool
	sees     []*namespace // with a Sidecar: the namespaces that it sees beside its own
}

// service is one service with its Pods.
type service struct {
	index   int
	name    string
	space   *namespace
	address netip.Addr // ClusterIP
	pods    []pod
	virtual bool // has a VirtualService
	rule    ruleKind
	policy  bool
}

type ruleKind uint8

const (
	noRule ruleKind = iota
	subsets
	distribute // subsets, and localities by weight
	failover   // subsets, and localities by priority
)

type pod struct {
	name    string
	version string
	address netip.Addr
	node    string // empty: no node
	zone    string
}

func (s *service) host() string { return s.name + "." + s.space.name + ".svc." + domain }

// New makes a mesh from settings. The error names all settings that are not valid.
func New(s Settings) (*Mesh, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	s.Form = cmp.Or(s.Form, Kubernetes)
	w := &Mesh{Settings: s}
	sizes := shares(s.Services, s.Namespaces, s.Zipf)
	for i := range s.Namespaces {
		w.spaces = append(w.spaces, &namespace{index: i, name: fmt.Sprintf("ns-%03d", i)})
	}
	for i := range s.Services {
		w.add(i, sizes)
	}
	chance := rand.New(rand.NewPCG(s.Seed, 0x6e61766172636800))
	order := permutation(chance, s.Services)
	for i, k := range order[:s.DestinationRules] {
		w.services[k].rule = subsets
		if i < s.LocalityRules {
			w.services[k].rule = distribute + ruleKind(i%2)
		}
	}
	for _, k := range permutation(chance, s.Services)[:s.VirtualServices] {
		w.services[k].virtual = true
	}
	w.sidecars(chance)
	w.joining = permutation(chance, s.Services)
	if s.Zipf == 0 { // all namespaces are equal: a few proxies already cover all of them
		slices.Sort(w.joining)
	}
	return w, nil
}

// add adds the i-th service to the next namespace that has room.
func (w *Mesh) add(i int, sizes []int) {
	space := w.spaces[i%len(w.spaces)]
	for len(space.services) >= sizes[space.index] {
		space = w.spaces[(space.index+1)%len(w.spaces)]
	}
	s := &service{index: i, name: fmt.Sprintf("svc-%04d", i), space: space, address: nth(serviceNet, i+1)}
	s.policy = w.Settings.PolicyEvery > 0 && i%w.Settings.PolicyEvery == 0
	for p := range w.Settings.Pods {
		s.pods = append(s.pods, w.pod(s, i*w.Settings.Pods+p, p, 0))
	}
	space.services = append(space.services, s)
	w.services = append(w.services, s)
}

// pod returns Pod `number` of the mesh, which is Pod p of its service. generation distinguishes it from its successors.
func (w *Mesh) pod(s *service, number, p, generation int) pod {
	one := pod{
		name:    fmt.Sprintf("%s-%05x-%05x", s.name, generation, p),
		version: fmt.Sprintf("v%d", 1+p%2),
		address: nth(podNet, number+1),
	}
	if w.Settings.Zones > 0 {
		zone := number % w.Settings.Zones
		one.zone = zoneName(zone)
		one.node = nodeName(zone)
	}
	return one
}

func zoneName(i int) string { return fmt.Sprintf("zone-%d", i) }
func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// sidecars adds to every n-th namespace a Sidecar that sees a random selection of other namespaces, large and small.
func (w *Mesh) sidecars(chance *rand.Rand) {
	if w.Settings.SidecarEvery == 0 {
		return
	}
	for i, space := range w.spaces {
		if i%w.Settings.SidecarEvery != 0 {
			continue
		}
		space.sidecar = true
		for _, k := range permutation(chance, len(w.spaces)) {
			if len(space.sees) < w.Settings.SidecarSees && k != i {
				space.sees = append(space.sees, w.spaces[k])
			}
		}
		slices.SortFunc(space.sees, func(a, b *namespace) int { return a.index - b.index })
	}
}

// shares divides n into k parts by Zipf's law with largest remainders; each part is at least one.
func shares(n, k int, exponent float64) []int {
	weights, total := make([]float64, k), 0.0
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -exponent)
		total += weights[i]
	}
	sizes, rest := make([]int, k), n-k
	order := make([]int, k)
	remainder := make([]float64, k)
	for i := range sizes {
		exact := float64(n-k) * weights[i] / total
		sizes[i] = 1 + int(exact)
		rest -= int(exact)
		remainder[i], order[i] = exact-math.Floor(exact), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainder[b], remainder[a]) })
	for _, i := range order[:rest] {
		sizes[i]++
	}
	return sizes
}

// permutation returns a random permutation (Fisher and Yates) by remainders of PCG's numbers, which are equal in every
// version of Go.
func permutation(chance *rand.Rand, n int) []int {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	for i := n - 1; i > 0; i-- {
		j := int(chance.Uint64() % uint64(i+1))
		p[i], p[j] = p[j], p[i]
	}
	return p
}

var (
	serviceNet = netip.MustParseAddr("10.96.0.0")
	podNet     = netip.MustParseAddr("10.128.0.0")
	// rolledNet is the range of addresses for rolling deploys.
	rolledNet = netip.MustParseAddr("10.240.0.0")
)

// nth returns the n-th address after base.
func nth(base netip.Addr, n int) netip.Addr {
	b := base.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	v += uint32(n)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// Namespaces returns the names of all namespaces, the largest first.
func (w *Mesh) Namespaces() []string {
	names := make([]string, len(w.spaces))
	for i, space := range w.spaces {
		names[i] = space.name
	}
	return names
}

// Host returns the host name and the namespace of the k-th service.
func (w *Mesh) Host(k int) (host, namespace string) {
	s := w.services[k]
	return s.host(), s.space.name
}

// Virtual returns the indices of the services with a VirtualService, in order.
func (w *Mesh) Virtual() []int {
	var all []int
	for _, s := range w.services {
		if s.virtual {
			all = append(all, s.index)
		}
	}
	return all
}

// Scoped returns the namespaces with a Sidecar that hides a part of the mesh.
func (w *Mesh) Scoped() []string {
	var names []string
	for _, space := range w.spaces {
		if space.sidecar {
			names = append(names, space.name)
		}
	}
	return names
}

// Seers returns the namespaces whose proxies see a namespace; nil: all do.
func (w *Mesh) Seers(namespace string) []string { return w.seers(namespace, nil) }

// seers returns the namespaces whose proxies see a namespace, while some Sidecars are narrowed.
func (w *Mesh) seers(name string, narrowed map[*namespace]bool) []string {
	seers := []string{}
	for _, space := range w.spaces {
		sees := !space.sidecar || space.name == name
		for _, other := range space.sees {
			sees = sees || other.name == name && !narrowed[space]
		}
		if sees {
			seers = append(seers, space.name)
		}
	}
	if len(seers) == len(w.spaces) {
		return nil
	}
	return seers
}

// clusters returns the names of a service's outbound clusters: of both ports, and of the given subsets.
func (s *service) clusters(versions ...string) []string {
	var names []string
	for _, port := range []uint32{httpPort, tcpPort} {
		names = append(names, xds.OutboundCluster(port, "", s.host()))
		if s.rule == noRule {
			continue
		}
		for _, v := range versions {
			names = append(names, xds.OutboundCluster(port, v, s.host()))
		}
	}
	return names
}

// Workload is the identity of a simulated proxy. Its fields are those of the node's metadata.
type Workload struct {
	Namespace, Pod, Name, ServiceAccount string // Name is the workload's, equal to the service's
	IP                                   string
	Labels                               map[string]string // shared by the proxies of one workload and version; read-only
	Cluster, Zone                        string
}

// Workloads returns the identities of the first n proxies, spread over all workloads. The Pods of the mesh come first;
// beyond their number, the proxies are further replicas without an endpoint. A larger n yields the same first
// identities.
func (w *Mesh) Workloads(n int) []Workload {
	all := make([]Workload, 0, n)
	labels := map[string]map[string]string{}
	for i := range n {
		s := w.services[w.joining[i%len(w.joining)]]
		p := i / len(w.joining)
		one := pod{}
		if p < len(s.pods) {
			one = s.pods[p]
		} else {
			one = w.pod(s, i, p, 0) // i is above the numbers of all Pods
		}
		all = append(all, s.workload(one, labels))
	}
	return all
}

// workload returns the identity of one Pod's proxy; labels holds the maps that proxies share.
func (s *service) workload(p pod, labels map[string]map[string]string) Workload {
	key := s.name + p.version
	if labels[key] == nil {
		labels[key] = map[string]string{"app": s.name, "version": p.version, "security.istio.io/tlsMode": "istio"}
	}
	return Workload{Namespace: s.space.name, Pod: p.name, Name: s.name, ServiceAccount: s.name, IP: p.address.String(),
		Labels: labels[key], Cluster: Cluster, Zone: p.zone}
}
