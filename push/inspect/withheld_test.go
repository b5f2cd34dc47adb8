package inspect

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"

	"navarch.io/navarch/push/xds"
)

// A type of which a version is withheld or was refused is an error for istioctl, even if all sent versions are
// acknowledged or nothing was sent; /debug/syncz names the withheld versions, and since when.
func TestStatusOfRefused(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	st := Stream{Proxy: "web.shop", Node: "sidecar~1.1.1.1~web.shop~x"}
	st.Types[xds.Listener] = TypeStatus{Subscribed: true, Synced: true, Sent: "1", Acked: "1", Withheld: []Withheld{{Name: "l", Version: "v2", Good: "v1",
		RefusedBy: 3, First: at, Last: at.Add(time.Minute), Text: "no", Objects: []string{"EnvoyFilter shop/f"}}}}
	st.Types[xds.Route] = TypeStatus{Subscribed: true, Withheld: []Withheld{{Name: "r", Version: "v"}}}
	st.Types[xds.Cluster] = TypeStatus{Subscribed: true, Synced: true, Sent: "1", Acked: "1", Refused: []Refused{{Name: "c", Version: "v"}}}
	st.Types[xds.Endpoint] = TypeStatus{Subscribed: true, Synced: true, Sent: "1", Acked: "1"}
	c := Config{Streams: func(string) []Stream { return []Stream{st} }}
	all, err := Status(c)
	if err != nil {
		t.Fatal(err)
	}
	one := &statusv3.ClientConfig{}
	if err := all[0].Resource.UnmarshalTo(one); err != nil {
		t.Fatal(err)
	}
	for i, want := range []statusv3.ConfigStatus{statusv3.ConfigStatus_ERROR, statusv3.ConfigStatus_ERROR, statusv3.ConfigStatus_SYNCED, statusv3.ConfigStatus_ERROR} {
		if got := one.GenericXdsConfigs[i].ConfigStatus; got != want {
			t.Errorf("%s: %v, want %v", one.GenericXdsConfigs[i].TypeUrl, got, want)
		}
	}
	s := httptest.NewServer(Handler(c))
	defer s.Close()
	_, body := visit(t, s, "/debug/syncz")
	var got []struct {
		Withheld []Withheld `json:"listener_withheld"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got) != 1 || len(got[0].Withheld) != 1 {
		t.Fatalf("%v: %s", err, body)
	}
	for _, word := range []string{`"name": "l"`, `"version": "v2"`, `"last_good_version": "v1"`, `"refused_by": 3`, `"first_refusal": "2023-11-14T22:13:20Z"`,
		`"last_refusal": "2023-11-14T22:14:20Z"`, `"error": "no"`, `EnvoyFilter shop/f`} {
		if !strings.Contains(body, word) {
			t.Errorf("syncz does not say %s: %s", word, body)
		}
	}
}
