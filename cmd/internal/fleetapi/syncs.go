package fleetapi

import (
	"cmp"
	"encoding/json"
	"time"

	"navarch.io/navarch/push/inspect"
)

// Syncs is one replica's part of an answer of /api/v1/syncz. The items are inspect.Syncs with a Replica, as JSON.
type Syncs struct {
	Items []json.RawMessage `json:"items"`
	More  bool              `json:"more,omitempty"` // further proxies follow after Items; false if the limit is 0
}

// keyedSync is an item with the text by which it sorts.
type keyedSync struct {
	key string
	raw json.RawMessage
}

// keyOf returns a text by which states sort: by proxy, node, replica and the begin of the stream.
func keyOf(proxy, node, replica string, connected time.Time) string {
	return proxy + "\x00" + node + "\x00" + replica + "\x00" + connected.UTC().Format(ordered)
}

// PartOfSyncs returns a replica's part of a window. The error is that of json.Marshal.
func PartOfSyncs(w Window, all []inspect.Sync) (part Syncs, err error) {
	window, next := cut(w, all, false, func(s *inspect.Sync) string { return keyOf(s.Proxy, s.Node, s.Replica, s.Connected) })
	part.Items, part.More = []json.RawMessage{}, next != ""
	for _, s := range window {
		raw, err := json.Marshal(s)
		if err != nil {
			return part, err
		}
		part.Items = append(part.Items, raw)
	}
	return part, nil
}

// MergeSyncs merges the replicas' parts of a window. It sets only Items and Next of the answer. The error reports an
// item that does not decode.
func MergeSyncs(w Window, parts []From[Syncs]) (a Answer[json.RawMessage], err error) {
	var all []keyedSync
	more := false
	for _, f := range parts {
		for _, raw := range f.Part.Items {
			var s struct {
				Proxy, Node, Replica string
				Connected            time.Time
			}
			if err := json.Unmarshal(raw, &s); err != nil {
				return a, err
			}
			all = append(all, keyedSync{keyOf(s.Proxy, s.Node, cmp.Or(s.Replica, f.Replica), s.Connected), raw})
		}
		more = more || f.Part.More
	}
	window, next := cut(w, all, more, func(s *keyedSync) string { return s.key })
	for _, s := range window {
		a.Items = append(a.Items, s.raw)
	}
	a.Next = next
	return a, nil
}
