// Package manual serves the operators' pages as HTML. Alerts link to these pages. The pages are public: callers need no
// credential.
//
// Owns: the rendered pages, each rendered at its first request.
// Reads: the pages of deploy/docs, which are compiled into the program.
// Never: shows anything of this process or its mesh.
package manual

import (
	"bytes"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"navarch.io/navarch/deploy/docs"
)

// Root is the URL path of the list of pages. The path of a page is Root and the name of its file, so that links between
// pages work as in the repository.
const Root = "/docs/"

// style keeps lines readable. The header Content-Security-Policy permits only this style.
const style = `body{max-width:75rem;margin:2rem auto;padding:0 1rem;font:1rem/1.5 sans-serif}` +
	`table{border-collapse:collapse}td,th{border:1px solid #999;padding:.3rem .5rem;text-align:left;vertical-align:top}` +
	`pre,code{background:#eee;overflow-x:auto}:target{background:#fe9}`

// outside matches links to files of the repository that are not pages. These files are not served.
var outside = regexp.MustCompile(`<a href="\.\.[^"]*">(.*?)</a>`)

// Handler returns a handler for GET and HEAD requests. It serves the list of pages at Root, and each page below Root.
// It answers other paths with 404, and other methods with 405.
func Handler() http.Handler {
	files, err := fs.ReadDir(docs.Pages, ".")
	if err != nil {
		panic(err) // impossible: the files are compiled in
	}
	mux := http.NewServeMux()
	list := "<h1>Navarch</h1>\n<ul>\n"
	for _, f := range files {
		name := f.Name()
		page := sync.OnceValue(func() []byte { return render(name) })
		mux.HandleFunc("GET "+Root+name, func(w http.ResponseWriter, _ *http.Request) { write(w, page()) })
		list += fmt.Sprintf("<li><a href=%q>%s</a></li>\n", name, html.EscapeString(title(name)))
	}
	list += "</ul>\n"
	mux.HandleFunc("GET "+Root+"{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, document("Navarch", []byte(list))) })
	return mux
}

func write(w http.ResponseWriter, page []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page)
}

// source returns the text of a page.
func source(name string) []byte {
	text, err := docs.Pages.ReadFile(name)
	if err != nil {
		panic(err) // impossible: the files are compiled in
	}
	return text
}

// title returns the heading of a page.
func title(name string) string {
	first, _, _ := strings.Cut(string(source(name)), "\n")
	return strings.TrimPrefix(first, "# ")
}

// render converts a page to HTML. Headings get the ids to which links refer.
func render(name string) []byte {
	var out bytes.Buffer
	md := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	if err := md.Convert(source(name), &out); err != nil {
		panic(err) // a buffer never fails
	}
	return document(title(name), outside.ReplaceAll(out.Bytes(), []byte("$1")))
}

func document(title string, body []byte) []byte {
	return fmt.Appendf(nil,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title><style>%s</style></head>\n<body>\n<p><a"+
			" href=\"%s\">All pages</a></p>\n%s</body></html>\n",
		html.EscapeString(title), style, "./", body)
}
