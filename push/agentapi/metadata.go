package agentapi

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
)

const (
	storeHeader    = "navarch-store"
	revisionHeader = "navarch-revision"
	placeHeader    = "navarch-place"
	behindTrailer  = "navarch-behind"
)

// MinRevision is the newest revision of the store that a proxy was served, by any replica: it must not be taken back behind it.
type MinRevision struct {
	Store    string // which store; empty: the agent does not know
	Revision int64  // 0: none
	// Place is where the newest of what it was served stands among all that the leaders have written, as replicas say it: opaque. Revisions
	// start again where etcd is restored, places do not. Empty: it is not known.
	Place string
}

// maxPlace is the most bytes of a place that are taken from a header.
const maxPlace = 64

// Encode adds it to the metadata of a stream that is about to be opened. No revision is no header; the header of the place is there
// without one too, since it asks for places (EncodeVersion).
func (m MinRevision) Encode(md metadata.MD) {
	md.Set(placeHeader, m.Place)
	if m.Revision <= 0 {
		return
	}
	md.Set(revisionHeader, encodeRevision(m.Revision))
	if m.Store != "" {
		md.Set(storeHeader, m.Store)
	}
}

// DecodeMinRevision reads it from the metadata of a stream that was opened, which is in the stream's context. What is not a revision, or is
// too long for a place, is none: who forges one is the only one that waits for it. places: the client understands places in
// system_version_info.
func DecodeMinRevision(ctx context.Context) (m MinRevision, places bool) {
	header := metadata.ValueFromIncomingContext(ctx, placeHeader)
	if place := single(header); len(place) <= maxPlace {
		m.Place = place
	}
	if revision, ok := decodeRevision(single(metadata.ValueFromIncomingContext(ctx, revisionHeader))); ok && revision > 0 {
		m.Store, m.Revision = single(metadata.ValueFromIncomingContext(ctx, storeHeader)), revision
	}
	return m, len(header) == 1
}

// EncodeStore adds the name of a replica's store to the header of its answer; empty, while it is not known: nothing.
func EncodeStore(md metadata.MD, store string) {
	if store != "" {
		md.Set(storeHeader, store)
	}
}

// DecodeStore is the name of a replica's store; empty: it does not say.
func DecodeStore(header metadata.MD) string { return single(header.Get(storeHeader)) }

// EncodeBehind is the trailer of a stream that a replica refuses because it is behind the client's MinRevision; revision is what it has.
func EncodeBehind(revision int64) metadata.MD {
	return metadata.Pairs(behindTrailer, encodeRevision(revision))
}

// DecodeBehind is the revision that a replica has which refused a stream; false: that was not the reason.
func DecodeBehind(trailer metadata.MD) (revision int64, ok bool) {
	return decodeRevision(single(trailer.Get(behindTrailer)))
}

// AppendVersion appends what system_version_info says of the store: the revision, and for clients that understand it, the place.
func AppendVersion(b []byte, revision int64, place string) []byte {
	b = strconv.AppendInt(b, revision, 10)
	if place != "" {
		b = append(append(b, ' '), place...)
	}
	return b
}

// DecodeVersion is the inverse of AppendVersion; false: the text is none. Other control planes write other things.
func DecodeVersion(text string) (revision int64, place string, ok bool) {
	number, place, _ := strings.Cut(text, " ")
	revision, ok = decodeRevision(number)
	if !ok || len(place) > maxPlace {
		return 0, "", false
	}
	return revision, place, true
}

// encodeRevision is a revision of the store in a header.
func encodeRevision(revision int64) string { return strconv.FormatInt(revision, 10) }

// decodeRevision is the inverse of encodeRevision; false: the text is none.
func decodeRevision(text string) (revision int64, ok bool) {
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision < 0 {
		return 0, false
	}
	return revision, true
}

// single is the value of a header that was sent once; empty: it was not.
func single(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return ""
}
