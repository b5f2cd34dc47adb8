package fleet

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A replica's record states the snapshot that it serves, without the store's revision, which each write changes,
// including that of the record. An unchanged record is not written again, so an idle replica writes nothing.
func TestRecordOfAnIdleReplica(t *testing.T) {
	etcd := kvtest.Start(t)
	m, err := mirror.New(mirror.Config{Source: etcd.Store, Logger: quiet, CheckEvery: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(Config{Store: etcd.Store, Name: "a", Revision: func() int64 { return m.Status().Revision }, Lease: 3 * time.Second, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{m.Run, f.member.Run, f.replica.Run} {
		running.Go(func() {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("ended: %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	wait, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	reach := func(what string, done func() bool) {
		t.Helper()
		if until(wait, done) != nil {
			t.Fatalf("%s: did not come", what)
		}
	}
	epoch := etcd.Elect("leader")
	for port := range uint32(3) {
		service, err := model.New(model.Key{Kind: model.KindService, Namespace: "shop", Name: "a"}, 1,
			&model.ServiceSpec{Hosts: []string{"a.shop.svc.cluster.local"}, Ports: []*model.ServicePort{{Number: 80 + port}}})
		if err != nil {
			t.Fatal(err)
		}
		served := etcd.MustCommit(kv.Batch{Epoch: epoch, Puts: []model.Record{service}})
		reach("the commit", func() bool { return m.Status().Revision == served })
		idle := f.member.Record(time.Now())
		if idle.Revision != served {
			t.Fatalf("the record says revision %d, %d is served", idle.Revision, served)
		}
		for range 3 {
			response, err := etcd.Client().Put(wait, etcd.Prefix()+"refusals/other", "x")
			if err != nil {
				t.Fatal(err)
			}
			reach("the write of another", func() bool { return m.Status().Seen.Revision >= response.Header.Revision })
			if later := f.member.Record(time.Now().Add(time.Hour)); !bytes.Equal(later.Encode(), idle.Encode()) {
				t.Fatalf("the record of an idle replica goes from %+v to %+v", idle, later)
			}
		}
	}
}
