package machines

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/machines"
)

// One credential has at most a quarter of its account's machines, at any addresses; the rest is for other credentials,
// however late they come. A known machine may reconnect.
// Promise: security-workloads.md#who-has-a-machines-token
func TestMostOfCredential(t *testing.T) {
	r := registry(mesh(t))
	let := func(credential string) (n int, err error) {
		for ; n <= machines.MostOfAccount; n++ {
			if _, err = r.Register(node(fmt.Sprintf("10.%d.%d.%d", credential[0], n/200, n%200)), credential, nil); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	for _, credential := range []string{"a", "b"} {
		if n, err := let(credential); n != machines.MostOfCredential || status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "one credential") {
			t.Errorf("%s has %d: %v", credential, n, err)
		}
	}
	first, err := r.Register(node("10.97.0.0"), "a", nil)
	if err != nil {
		t.Errorf("one that is known: %v", err)
	}
	first.Leave()
}

// Another credential does not take over the entry of a machine that is connected to another replica; with the same
// credential the machine moves. Reports of this process do not count, nor invalid ones.
// Promise: security-workloads.md#who-has-a-machines-token
func TestHeldElsewhere(t *testing.T) {
	r := registry(mesh(t))
	c := claim{namespace: "shop", account: "vm", group: "vms", address: "10.0.0.1"}
	c.credential = digest("one")
	report, err := c.report(r.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := report.Encode()
	if err != nil {
		t.Fatal(err)
	}
	others := r.others()
	for i, paths := range [][]string{{report.Path("b-1"), "registrations/b-1/shop/x"}, {report.Path(r.process)}} {
		folder := kv.Folder{}
		for _, path := range paths {
			folder.Blobs = append(folder.Blobs, kv.Blob{Path: path, Raw: raw, Revision: 1})
		}
		r.storeElsewhere(others.Read(folder))
		moved, err := r.Register(node("10.0.0.1"), "one", nil)
		if err != nil {
			t.Fatalf("it moves: %v", err)
		}
		moved.Leave() // it is connected elsewhere still, or nowhere
		if _, err := r.Register(node("10.0.0.1"), "another", nil); (status.Code(err) == codes.FailedPrecondition) != (i == 0) {
			t.Errorf("reports %v, and another credential: %v", paths, err)
		}
		r.known.drop(report.ID())
	}
	report.Disconnected = time.Now()
	if raw, err = report.Encode(); err != nil {
		t.Fatal(err)
	}
	r.storeElsewhere(others.Read(kv.Folder{Blobs: []kv.Blob{{Path: report.Path("b-1"), Raw: raw, Revision: 2}}}))
	if _, err := r.Register(node("10.0.0.1"), "another", nil); err != nil {
		t.Errorf("it has left the other replica, and another credential: %v", err)
	}
}
