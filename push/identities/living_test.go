package identities

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

const (
	uidA = "5d0e7a54-1a25-4b4b-9c1e-0a3f5b1c2d3e"
	uidB = "5d0e7a54-1a25-4b4b-9c1e-0a3f5b1c2d3f"
)

// cluster returns a snapshot with Pod shop/web-1 and service account shop/web of uid A, as a source reports them.
func cluster(t *testing.T, source string) *mirror.Snapshot { return clusterOf(t, "", source) }

func clusterOf(t *testing.T, cluster, source string) *mirror.Snapshot {
	t.Helper()
	var records []model.Record
	for kind, body := range map[model.Kind]proto.Message{
		model.KindWorkload:       &model.WorkloadSpec{Endpoint: &model.Endpoint{Address: "10.1.0.1", ServiceAccount: "web"}, Uid: model.UID(uidA)},
		model.KindServiceAccount: &model.ServiceAccountSpec{Uid: model.UID(uidA)},
	} {
		name := map[model.Kind]string{model.KindWorkload: "web-1", model.KindServiceAccount: "web"}[kind]
		r, err := model.New(model.Key{Kind: kind, Origin: origin.New(cluster, source), Namespace: "shop", Name: name}, 1, body)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	for _, name := range []string{"shop", "hidden"} { // of the latter nothing else is read
		r, err := model.New(model.Key{Kind: model.KindNamespace, Origin: origin.New(cluster, source), Name: name}, 1, &model.ServiceAccountSpec{})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return mirror.Empty().Apply(1, records, nil).New
}

// A credential is refused if its Pod or account is gone, or another object has its name; it is never refused while that
// is uncertain.
// Promise: security-workloads.md#tokens
func TestLiving(t *testing.T) {
	read := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	old, young, after := read.Add(-time.Hour), read.Add(-30*time.Second), read.Add(time.Second)
	caller := func(change func(*attest.Caller)) attest.Caller {
		who := attest.Caller{Namespace: "shop", ServiceAccount: "web", Cluster: "Kubernetes", Pod: "web-1", PodUID: uidA, AccountUID: uidA, Issued: old}
		if change != nil {
			change(&who)
		}
		return who
	}
	kube, some := cluster(t, origin.Kube), asof.Read{Until: read, Namespaces: true}
	for name, tt := range map[string]struct {
		change   func(*attest.Caller)
		snapshot *mirror.Snapshot
		read     asof.Read
		unsound  bool
		refused  bool
	}{
		"there":                                     {},
		"a Pod that is gone":                        {change: func(c *attest.Caller) { c.Pod = "web-2" }, refused: true},
		"one whose record may be to come":           {change: func(c *attest.Caller) { c.Pod, c.Issued = "web-2", young }},
		"one that is newer than what was read":      {change: func(c *attest.Caller) { c.Pod, c.Issued = "web-2", after }},
		"a Pod that was made again":                 {change: func(c *attest.Caller) { c.PodUID = uidB }, refused: true},
		"that, young":                               {change: func(c *attest.Caller) { c.PodUID, c.Issued = uidB, young }, refused: true},
		"a new Pod whose predecessor is recorded":   {change: func(c *attest.Caller) { c.PodUID, c.Issued = uidB, after }},
		"a certificate that does not say uids":      {change: func(c *attest.Caller) { c.PodUID, c.AccountUID = "", "" }},
		"an account that is gone":                   {change: func(c *attest.Caller) { c.Pod, c.ServiceAccount = "", "other" }, refused: true},
		"an account that was made again":            {change: func(c *attest.Caller) { c.Pod, c.AccountUID = "", uidB }, refused: true},
		"of another cluster, of which nobody knows": {change: func(c *attest.Caller) { c.Pod, c.Cluster = "web-2", "east" }},
		"there, in another cluster":                 {change: func(c *attest.Caller) { c.Cluster = "west" }, snapshot: clusterOf(t, "west", origin.Kube)},
		"gone from another cluster":                 {change: func(c *attest.Caller) { c.Pod, c.Cluster = "web-2", "west" }, snapshot: clusterOf(t, "west", origin.Kube), refused: true},
		"there in the config cluster alone":         {change: func(c *attest.Caller) { c.Cluster = "west" }, refused: true},
		"there in another cluster alone":            {snapshot: clusterOf(t, "west", origin.Kube), refused: true},
		"of an account that may not be read":        {change: func(c *attest.Caller) { c.ServiceAccount, c.Cluster = "other", "west" }, snapshot: clusterOf(t, "west", origin.Kube), read: asof.Read{Until: read, Everywhere: true, NoAccounts: true}},
		"a Pod that is gone, of such an account":    {change: func(c *attest.Caller) { c.Pod, c.ServiceAccount, c.Cluster = "web-2", "other", "west" }, snapshot: clusterOf(t, "west", origin.Kube), read: asof.Read{Until: read, Everywhere: true, NoAccounts: true}, refused: true},
		"of our own issuer":                         {change: func(c *attest.Caller) { c.Pod, c.Cluster = "web-2", "" }},
		"that does not say when it was issued":      {change: func(c *attest.Caller) { c.Pod, c.Issued = "web-2", time.Time{} }},
		"while etcd is away":                        {change: func(c *attest.Caller) { c.Pod = "web-2" }, unsound: true},
		"before anything was read":                  {change: func(c *attest.Caller) { c.Pod = "web-2" }, read: asof.Read{Everywhere: true, Until: time.Unix(1, 0)}},
		"a namespace that is not read":              {change: func(c *attest.Caller) { c.Namespace = "hidden" }, read: some},
		"gone from one that is, of some":            {change: func(c *attest.Caller) { c.Pod = "web-2" }, read: some, refused: true},
		"a namespace that is gone, of all":          {change: func(c *attest.Caller) { c.Namespace = "hidden" }, refused: true},
		"a namespace that is gone, of some":         {change: func(c *attest.Caller) { c.Namespace = "gone" }, read: some, refused: true},
		"one whose record may be to come, too":      {change: func(c *attest.Caller) { c.Namespace, c.Issued = "gone", young }, read: some},
		"of a leader that writes no Namespaces":     {change: func(c *attest.Caller) { c.Namespace = "gone" }, read: asof.Read{Until: read}},
		"a Pod of a file in its place":              {snapshot: cluster(t, ""), read: asof.Read{Until: read}},
	} {
		snapshot, at := kube, asof.Read{Until: read, Everywhere: true}
		if tt.snapshot != nil {
			snapshot = tt.snapshot
		}
		if !tt.read.Until.IsZero() {
			at = tt.read
		}
		l := &Living{Snapshot: func() *mirror.Snapshot { return snapshot }, Sound: func() bool { return !tt.unsound }, Cluster: "Kubernetes", Read: func(cluster string) asof.Read {
			if cluster == "east" {
				return asof.Read{}
			}
			return at
		}}
		if err := l.Refused(caller(tt.change)); (err != nil) != tt.refused || err != nil && !errors.Is(err, attest.ErrIdentity) {
			t.Errorf("%s: %v", name, err)
		}
	}
	nothing := &Living{Snapshot: func() *mirror.Snapshot { return nil }}
	if err := nothing.Refused(caller(nil)); err != nil {
		t.Errorf("without a snapshot: %v", err)
	}
}
