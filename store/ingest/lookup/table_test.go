package lookup

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

var options = normal.Options{ResolveGateways: true, Automatic: []netip.Prefix{netip.MustParsePrefix("240.240.0.0/16")}}

// user is a Table whose caller stores the records of each object, and makes them again for each marked object.
type user struct {
	t *testing.T
	*Table[[]model.Record]
	renewed []string // names of the objects that were normalised again
}

func newUser(t *testing.T) *user {
	return &user{t: t, Table: New[[]model.Record](normal.New(options))}
}

func parse(t *testing.T, text string) *object.Object {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var head struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, Namespace string
			Labels          map[string]string
		}
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		t.Fatal(err)
	}
	group, version, grouped := strings.Cut(head.APIVersion, "/")
	if !grouped {
		group, version = "", group
	}
	return &object.Object{ID: object.ID{Group: group, Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name},
		Version: version, Labels: head.Metadata.Labels, JSON: raw}
}

// put stores an object, and renews the marked objects.
func (u *user) put(o *object.Object) {
	if u.Parse(u.Put(o)).Changed {
		u.Mark(o.ID)
	}
	u.renew()
}

func (u *user) remove(id object.ID) {
	u.Remove(id)
	u.renew()
}

func (u *user) renew() {
	u.renewed = nil
	u.Renew(func(all []*Node[[]model.Record]) {
		for _, n := range all {
			o := n.Object()
			u.renewed = append(u.renewed, o.ID.Kind+" "+o.ID.Name)
			if n.MeshOf() != nil {
				continue
			}
			r := u.normal.Object(o, u.Table)
			u.SetRefs(n, r.Refs, r.UsesMesh)
			n.Entry = r.Records
		}
	})
}

// example tests one row: two versions of an object that differ for its reader, and the reader.
type example struct{ one, two, reader *object.Object }

func examples(t *testing.T) map[string]example {
	made := func(o *object.Object, err error) *object.Object {
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	node := "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/region: %s}}}"
	pod := "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, labels: {l: %s}}, status: {podIP: 10.0.0.1}}"
	slice := "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s, namespace: shop, " +
		"labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.0.0.1], nodeName: n1, targetRef: {kind: Pod, name: p}}]}"
	binding := "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: shop}, " +
		"roleRef: {kind: %s, name: r}, subjects: [{kind: ServiceAccount, namespace: shop, name: a}]}"
	role := "{apiVersion: rbac.authorization.k8s.io/v1, kind: %s, metadata: {name: r, namespace: %s}, rules: [{apiGroups: [''], resources: [secrets], verbs: [%s]}]}"
	entry := parse(t, "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: e, namespace: shop}, "+
		"spec: {hosts: [db.example.com], resolution: DNS, ports: [{number: 5432, name: tcp, protocol: TCP}]}}")
	gateway := parse(t, "{apiVersion: v1, kind: Service, metadata: {name: gw, namespace: shop, labels: {topology.istio.io/network: b}}, "+
		"spec: {type: LoadBalancer, ports: [{name: tls, port: 15443}]}, status: {loadBalancer: {ingress: [{hostname: lb.example.com}]}}}")
	authentication := parse(t, "{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {name: ra, namespace: shop}, "+
		"spec: {jwtRules: [{issuer: i, jwksUri: 'https://keys.example.com/k'}]}}")
	policy := parse(t, "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: a, namespace: shop}}")
	mesh := "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio, namespace: istio-system}, data: {mesh: 'connectTimeout: %ds'}}"
	p := func(format string, args ...any) *object.Object { return parse(t, fmt.Sprintf(format, args...)) }
	keys := normal.KeysID("shop", normal.KeySource{URI: "https://keys.example.com/k"})
	return map[string]example{
		"Pod":  {p(pod, "one"), p(pod, "two"), parse(t, slice)},
		"Node": {p(node, "one"), p(node, "two"), parse(t, slice)},
		"Namespace": {parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"),
			parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {topology.istio.io/network: w}}}"),
			parse(t, "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, "+
				"spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}")},
		"Role":        {p(role, "Role", "shop", "get"), p(role, "Role", "shop", "list"), p(binding, "Role")},
		"ClusterRole": {p(role, "ClusterRole", "", "get"), p(role, "ClusterRole", "", "list"), p(binding, "ClusterRole")},
		"ConfigMap":   {p(mesh, 1), p(mesh, 2), policy},
		"AutomaticAddresses": {made(normal.NewAutomatic("shop", "e", map[string][]string{"db.example.com": {"240.240.0.1"}})),
			made(normal.NewAutomatic("shop", "e", map[string][]string{"db.example.com": {"240.240.0.2"}})), entry},
		"ResolvedName": {made(normal.NewResolved("lb.example.com", []string{"192.0.2.1"})),
			made(normal.NewResolved("lb.example.com", []string{"192.0.2.2"})), gateway},
		"KeySet": {made(normal.NewKeys(keys, `{"keys":[]}`, "")), made(normal.NewKeys(keys, "", "away")), authentication},
	}
}

// Each row of the table marks its readers when an object comes, changes and goes, and when nothing changes it marks
// none. A row without an example is named here: add one to examples, and the kind to the random changes of TestRandom.
func TestRows(t *testing.T) {
	all := examples(t)
	for kind, r := range rows {
		x, is := all[kind.kind]
		if !is {
			t.Errorf("the row of %s has no example", kind.kind)
			continue
		}
		if r.parse == nil || r.equal == nil {
			t.Errorf("the row of %s does not say how an object is parsed, or when two are equal", kind.kind)
			continue
		}
		u := newUser(t)
		u.put(x.reader)
		for _, step := range []struct {
			what  string
			do    func()
			marks bool
		}{
			{"comes", func() { u.put(x.one) }, true},
			{"is emitted again", func() { u.put(x.one) }, false},
			{"changes", func() { u.put(x.two) }, true},
			{"goes", func() { u.remove(x.two.ID) }, true},
		} {
			step.do()
			if marked := slices.Contains(u.renewed, x.reader.ID.Kind+" "+x.reader.ID.Name); marked != step.marks {
				t.Errorf("%s: where it %s, its reader is marked: %v (renewed %v)", kind.kind, step.what, marked, u.renewed)
			}
			u.verify()
		}
	}
}

// For any additions, changes and removals in any order, the records equal those made from scratch, edges are known in
// both directions, and no state is left in the end.
func TestRandom(t *testing.T) {
	texts := map[object.ID]func(r *rand.Rand) *object.Object{}
	for _, x := range examples(t) {
		texts[x.one.ID] = func(r *rand.Rand) *object.Object { return []*object.Object{x.one, x.two}[r.IntN(2)] }
		texts[x.reader.ID] = func(*rand.Rand) *object.Object { return x.reader }
	}
	for i := range 3 { // more Pods, at few addresses, and slices that do not name them
		make := func(format string) func(r *rand.Rand) *object.Object {
			return func(r *rand.Rand) *object.Object { return parse(t, fmt.Sprintf(format, i, r.IntN(3), r.IntN(3))) }
		}
		for _, format := range []string{
			"{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: shop, labels: {l: l%d}}, spec: {nodeName: n1}, status: {podIP: 10.0.0.%d}}",
			"{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s%d, namespace: shop, " +
				"labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 8%d}], endpoints: [{addresses: [10.0.0.%d]}, {addresses: [10.0.0.7]}]}",
		} {
			texts[make(format)(rand.New(rand.NewPCG(0, 0))).ID] = make(format)
		}
	}
	ids := slices.SortedFunc(maps.Keys(texts), object.ID.Compare)
	for seed := range uint64(6) {
		r, u := rand.New(rand.NewPCG(seed, 5)), newUser(t)
		there := map[object.ID]*object.Object{}
		for step := range 300 {
			id := ids[r.IntN(len(ids))]
			if r.IntN(3) == 0 {
				delete(there, id)
				u.remove(id)
			} else {
				there[id] = texts[id](r)
				u.put(there[id])
			}
			u.verify()
			if step%5 > 0 {
				continue
			}
			nothing := newUser(t)
			for _, o := range there {
				nothing.put(o)
			}
			if got, want := u.all(), nothing.all(); !maps.Equal(got, want) {
				t.Fatalf("seed %d, step %d: records %v, from nothing %v", seed, step, got, want)
			}
		}
		for id := range there {
			u.remove(id)
		}
		x := u.index
		if n := len(u.objects) + len(u.missing) + len(x.pods.asked) + len(x.nodes) + len(x.automaticAt) + len(x.meshes) + len(x.addresses.users) +
			len(x.demands[origin.DNS].names) + len(x.demands[origin.JWKS].names); n > 0 {
			t.Errorf("seed %d: something is left: %d objects, %d names, %+v", seed, len(u.objects), len(u.missing), x)
		}
	}
}

// all returns the hashes of all records.
func (u *user) all() map[model.Key]model.Hash {
	all := map[model.Key]model.Hash{}
	for _, n := range u.objects {
		for _, r := range n.Entry {
			all[r.Meta().Key] = r.Meta().Hash
		}
	}
	return all
}

// verify compares the lookups of each object with the readers of the names.
func (u *user) verify() {
	u.t.Helper()
	type node = Node[[]model.Record]
	type edge struct{ from, to *node }
	forth, back := map[edge]bool{}, map[edge]bool{}
	for _, from := range u.objects {
		for _, to := range from.refs {
			forth[edge{from, to}] = true
		}
	}
	for what, all := range map[string]map[object.ID]*node{"there": u.objects, "missing": u.missing} {
		for id, to := range all {
			switch {
			case to.ID() != id:
				u.t.Fatalf("%v, which is %s, is called %v", id, what, to.ID())
			case to.by == nil && what == "missing":
				u.t.Fatalf("%v is kept, and no object looks it up", id)
			case u.objects[id] != nil && u.missing[id] != nil:
				u.t.Fatalf("%v is there and missing", id)
			}
			for from := range to.by.All() {
				back[edge{from, to}] = true
			}
		}
	}
	if !maps.Equal(forth, back) {
		u.t.Fatalf("%d lookups, %d are known by what was looked up", len(forth), len(back))
	}
}

// An automatic address that passes from one ServiceEntry to another is the other's, whichever of the two is emitted
// first; one that no ServiceEntry has any more belongs to none.
func TestAutomaticAddressesPass(t *testing.T) {
	at := normal.AutomaticAtID(netip.MustParseAddr("240.240.0.1"))
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		u := newUser(t)
		emit := func(name string, addresses ...string) {
			o, err := normal.NewAutomatic("shop", name, map[string][]string{"h": addresses})
			if err != nil {
				t.Fatal(err)
			}
			u.put(o)
		}
		from, to := names[0], names[1]
		emit(from, "240.240.0.1")
		emit(to, "240.240.0.1")
		emit(from, "240.240.0.2")
		if got, want := u.AutomaticAt(at), normal.AutomaticID("shop", to); got != want {
			t.Errorf("from %s to %s: the address is of %v, want %v", from, to, got, want)
		}
		if emit(to); u.AutomaticAt(at) != (object.ID{}) {
			t.Errorf("it is still of %v", u.AutomaticAt(at))
		}
	}
}

// Pods of a namespace are found by their addresses as long as one of its slices looks one up, and no longer; a slice
// that does so again finds them as they are then.
func TestPodsAreFoundWhileLookedUp(t *testing.T) {
	slice := func(name, named string) *object.Object {
		return parse(t, "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: "+name+", namespace: shop, "+
			"labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.0.0.1]"+named+"}]}")
	}
	pod := func(account string) *object.Object {
		return parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, "+
			"spec: {serviceAccountName: "+account+"}, status: {podIP: 10.0.0.1}}")
	}
	u := newUser(t)
	want := func(account string, places int) {
		t.Helper()
		got := ""
		if n := u.Get(slice("a", "").ID); n != nil {
			got = n.Entry[0].(*model.Endpoints).Spec.Endpoints[0].ServiceAccount
		}
		if got != account || len(u.index.pods.asked) != places {
			t.Errorf("account %q, want %q; Pods of %d namespaces are kept by their addresses, want %d",
				got, account, len(u.index.pods.asked), places)
		}
	}
	u.put(pod("one"))
	u.put(slice("a", ""))
	u.put(slice("b", ""))
	want("one", 1)
	u.remove(slice("b", "").ID)
	u.put(pod("two"))
	want("two", 1)
	u.put(slice("a", ", targetRef: {kind: Pod, name: p}"))
	want("two", 0)
	u.put(pod("three"))
	u.put(slice("a", ""))
	want("three", 1)
	u.remove(slice("a", "").ID)
	want("", 0)
}
