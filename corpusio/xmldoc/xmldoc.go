// Package xmldoc reads large XML files record by record: Split finds the record
// elements of a stream without parsing it, so that one broken record costs only
// itself, and Parse turns the bytes of one record into a small tree. Comments and
// processing instructions are never text.
package xmldoc

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"golang.org/x/text/encoding/ianaindex"
)

// ErrRoot reports a file whose root element belongs to another format.
var ErrRoot = errors.New("unexpected root element")

// MaxRecord is the largest record read; a larger one is reported as broken.
const MaxRecord = 256 << 20

// Node is an element, or (Name "") a run of text.
type Node struct {
	Name string // local name
	Attr []xml.Attr
	Text string
	Kids []*Node
}

// Parse reads one element with all it contains.
func Parse(b []byte) (*Node, error) {
	d := xml.NewDecoder(bytes.NewReader(b))
	d.Entity = xml.HTMLEntity
	root := &Node{}
	stack := []*Node{root}
	for {
		tok, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		top := stack[len(stack)-1]
		switch t := tok.(type) {
		case xml.StartElement:
			n := &Node{Name: t.Name.Local, Attr: t.Attr}
			top.Kids = append(top.Kids, n)
			stack = append(stack, n)
			if len(stack) > 1000 {
				return nil, fmt.Errorf("elements nested deeper than 1000 at byte %d", d.InputOffset())
			}
		case xml.EndElement:
			if len(stack) == 1 || top.Name != t.Name.Local {
				return nil, fmt.Errorf("</%s> closes <%s> at byte %d", t.Name.Local, top.Name, d.InputOffset())
			}
			stack = stack[:len(stack)-1]
		case xml.CharData:
			top.Kids = append(top.Kids, &Node{Text: string(t)})
		}
	}
	if len(stack) != 1 {
		return nil, fmt.Errorf("<%s> is not closed", stack[len(stack)-1].Name)
	}
	for _, k := range root.Kids {
		if k.Name != "" {
			return k, nil
		}
	}
	return nil, errors.New("no element")
}

// At is the value of an attribute, "" when it is absent. The name is local.
func (n *Node) At(name string) string {
	if n == nil {
		return ""
	}
	for _, a := range n.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// Kid is the first child element of that name along a path "a/b/c", or nil.
func (n *Node) Kid(path string) *Node {
	for _, name := range strings.Split(path, "/") {
		if n == nil {
			return nil
		}
		var found *Node
		for _, k := range n.Kids {
			if k.Name == name {
				found = k
				break
			}
		}
		n = found
	}
	return n
}

// All lists the child elements of that name.
func (n *Node) All(name string) (out []*Node) {
	if n == nil {
		return nil
	}
	for _, k := range n.Kids {
		if k.Name == name {
			out = append(out, k)
		}
	}
	return out
}

// String is the text of all descendants in document order, white space folded.
// skip names elements whose text is left out.
func (n *Node) String(skip ...string) string {
	if n == nil {
		return ""
	}
	var b strings.Builder
	n.raw(&b, skip)
	return Fold(b.String())
}

func (n *Node) raw(b *strings.Builder, skip []string) {
	if n.Name == "" {
		b.WriteString(n.Text)
	}
	for _, s := range skip {
		if n.Name == s {
			return
		}
	}
	for _, k := range n.Kids {
		k.raw(b, skip)
	}
}

// Fold trims s and makes every run of white space one space.
func Fold(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	space := false
	for _, r := range s {
		if unicode.IsSpace(r) {
			space = true
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return b.String()
}

// Element is one record of a stream.
type Element struct {
	Name   string
	Bytes  []byte // the element; valid until the callback returns
	Offset int64  // bytes from the start of the decompressed stream
	Err    error  // the record is broken
}

// scanner reads markup tag by tag.
type scanner struct {
	r   *bufio.Reader
	off int64
}

// UTF8 gives r as UTF-8, following the encoding of its XML declaration.
func UTF8(r *bufio.Reader) (*bufio.Reader, error) {
	head, _ := r.Peek(256)
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		_, _ = r.Discard(3)
		head = head[3:]
	}
	if !bytes.HasPrefix(head, []byte("<?xml")) {
		return r, nil
	}
	decl, _, ok := bytes.Cut(head, []byte("?>"))
	if !ok {
		return r, nil
	}
	_, after, ok := strings.Cut(string(decl), "encoding=")
	if !ok || len(after) < 2 {
		return r, nil
	}
	name, _, _ := strings.Cut(after[1:], after[:1])
	if strings.EqualFold(name, "utf-8") || strings.EqualFold(name, "us-ascii") {
		return r, nil
	}
	enc, err := ianaindex.IANA.Encoding(name)
	if err != nil || enc == nil {
		return nil, fmt.Errorf("encoding %q is not known; convert the file to UTF-8", name)
	}
	return bufio.NewReaderSize(enc.NewDecoder().Reader(r), 1<<16), nil
}

// next reads up to and including the next piece of markup: text before it goes
// to keep when keep is not nil. It returns the markup, "<...>".
func (s *scanner) next(keep *bytes.Buffer) ([]byte, error) {
	for {
		part, err := s.r.ReadSlice('<')
		s.off += int64(len(part))
		full := errors.Is(err, bufio.ErrBufferFull)
		if keep != nil {
			if err == nil {
				keep.Write(part[:len(part)-1])
			} else {
				keep.Write(part)
			}
			if keep.Len() > MaxRecord {
				return nil, fmt.Errorf("record larger than %d bytes", MaxRecord)
			}
		}
		if err == nil {
			break
		}
		if !full {
			return nil, err
		}
	}
	tag := []byte{'<'}
	head, _ := s.r.Peek(8)
	end := ">"
	switch {
	case bytes.HasPrefix(head, []byte("!--")):
		end = "-->"
	case bytes.HasPrefix(head, []byte("![CDATA[")):
		end = "]]>"
	case bytes.HasPrefix(head, []byte("?")):
		end = "?>"
	}
	quote := byte(0)
	depth := 0
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return tag, err
		}
		s.off++
		tag = append(tag, c)
		if len(tag) > MaxRecord {
			return tag, fmt.Errorf("markup larger than %d bytes", MaxRecord)
		}
		if end != ">" {
			if c == '>' && len(tag) > len(end)+2 && bytes.HasSuffix(tag, []byte(end)) {
				return tag, nil
			}
			continue
		}
		doctype := len(tag) > 1 && tag[1] == '!'
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '<' && !doctype:
			// A tag that never closed: give what there is, and begin anew.
			_ = s.r.UnreadByte()
			s.off--
			return tag[:len(tag)-1], nil
		case doctype && c == '[':
			depth++
		case doctype && c == ']':
			depth--
		case c == '>' && depth <= 0:
			return tag, nil
		}
	}
}

// tagName is the local name of a start or end tag.
func tagName(tag []byte) (name string, closing, empty bool) {
	t := bytes.Trim(tag, "<>")
	if len(t) > 0 && t[0] == '/' {
		closing, t = true, t[1:]
	}
	empty = len(t) > 0 && t[len(t)-1] == '/'
	i := bytes.IndexAny(t, " \t\r\n/")
	if i >= 0 {
		t = t[:i]
	}
	if i := bytes.LastIndexByte(t, ':'); i >= 0 {
		t = t[i+1:]
	}
	return string(t), closing, empty
}

// Split calls f for every element of r whose name is in records, at any depth but
// not inside another such element. The root element must be one of roots.
func Split(r *bufio.Reader, roots, records []string, f func(Element) error) error {
	s := &scanner{r: r}
	in := func(list []string, name string) bool {
		for _, x := range list {
			if x == name {
				return true
			}
		}
		return false
	}
	var buf bytes.Buffer
	rootSeen := false
	var pending []byte // a start tag that ended the previous, broken record
	var pendingOff int64
	for {
		var tag []byte
		var err error
		off := s.off
		if pending != nil {
			tag, off, pending = pending, pendingOff, nil
		} else {
			tag, err = s.next(nil)
			off = s.off - int64(len(tag))
		}
		if errors.Is(err, io.EOF) {
			if !rootSeen {
				return fmt.Errorf("no XML element found: %w", ErrRoot)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if len(tag) < 2 || tag[1] == '!' || tag[1] == '?' {
			continue
		}
		name, closing, empty := tagName(tag)
		if !rootSeen && !closing {
			rootSeen = true
			if !in(roots, name) {
				return fmt.Errorf("<%s>, expected <%s>: %w", name, strings.Join(roots, ">, <"), ErrRoot)
			}
		}
		if closing || !in(records, name) {
			continue
		}
		buf.Reset()
		buf.Write(tag)
		el := Element{Name: name, Offset: off}
		for !empty {
			tag, err := s.next(&buf)
			if err != nil {
				el.Err = fmt.Errorf("<%s> is not closed: %w", name, err)
				if errors.Is(err, io.EOF) {
					el.Err = fmt.Errorf("<%s> is not closed at the end of the file", name)
				}
				break
			}
			if len(tag) > 1 && tag[1] != '!' && tag[1] != '?' {
				n, closing, _ := tagName(tag)
				if n == name && closing {
					buf.Write(tag)
					break
				}
				if n == name && !closing {
					el.Err = fmt.Errorf("<%s> is not closed before the next one", name)
					pending, pendingOff = bytes.Clone(tag), s.off-int64(len(tag))
					break
				}
			}
			buf.Write(tag)
		}
		el.Bytes = buf.Bytes()
		if err := f(el); err != nil {
			return err
		}
		if el.Err != nil && pending == nil {
			if strings.Contains(el.Err.Error(), "larger than") {
				continue
			}
			if !strings.Contains(el.Err.Error(), "end of the file") {
				return el.Err
			}
		}
	}
}
