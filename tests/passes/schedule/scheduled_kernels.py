# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 (kernels as text)
"""Scheduled kernels as text: legal as they stand, and the material that the mutation tests break."""

MATMUL = """
kernel @matmul(a: f32[100,64], b: f32[64,40]) -> (o: f32[100,40]) {
  buffer mm: f32[100,40]
  stage reduce mm(m in 100, n in 40; k in 64) -> mm[m, n] : acc = f32(0.0) then (acc + (a[m, k] * b[k, n]))
  stage map relu(m2 in 100, n2 in 40) -> o[m2, n2] = max((mm[m2, n2] - f32(1.0)), f32(0.0))
  for mo in 16 parallel {
    for no in 2 serial {
      alloc t: f32[6,16] @register {
        for i0 in 6 unrolled { for j0 in 16 vectorized {
          block mm.init(6*mo + i0, 16*no + j0) { t[i0, j0] = f32(0.0) } } }
        for ko in 16 serial { for ki in 4 unrolled {
          for i1 in 6 unrolled { for j1 in 16 vectorized {
            block mm.update(6*mo + i1, 16*no + j1, 4*ko + ki) {
              t[i1, j1] = (t[i1, j1] + (a[6*mo + i1, 4*ko + ki] * b[4*ko + ki, 16*no + j1])) } } } } }
        for i2 in 6 unrolled { for j2 in 16 vectorized {
          block relu.map(6*mo + i2, 16*no + j2) {
            o[6*mo + i2, 16*no + j2] = max((t[i2, j2] - f32(1.0)), f32(0.0)) } } }
      }
    }
    alloc u: f32[6,8] @register {
      for i3 in 6 unrolled { for j3 in 8 vectorized {
        block mm.init(6*mo + i3, 32 + j3) { u[i3, j3] = f32(0.0) } } }
      for k1 in 64 serial { for i4 in 6 unrolled { for j4 in 8 vectorized {
        block mm.update(6*mo + i4, 32 + j4, k1) {
          u[i4, j4] = (u[i4, j4] + (a[6*mo + i4, k1] * b[k1, 32 + j4])) } } } }
      for i5 in 6 unrolled { for j5 in 8 vectorized {
        block relu.map(6*mo + i5, 32 + j5) {
          o[6*mo + i5, 32 + j5] = max((u[i5, j5] - f32(1.0)), f32(0.0)) } } }
    }
  }
  for i6 in 4 serial { for j6 in 40 serial {
    alloc v: f32[1] @register {
      block mm.init(96 + i6, j6) { v[0] = f32(0.0) }
      for k2 in 64 serial {
        block mm.update(96 + i6, j6, k2) { v[0] = (v[0] + (a[96 + i6, k2] * b[k2, j6])) } }
      block relu.map(96 + i6, j6) { o[96 + i6, j6] = max((v[0] - f32(1.0)), f32(0.0)) }
    }
  } }
}
"""

CONVOLUTION = """
kernel @convolution(x: f32[n,16,14,14], w: f32[32,16,3,3]{0,2,3,1;0:16}, bias: f32[32]) -> (o: f32[n,32,14,14]) {
  symbol n in [1, 64]
  buffer pad: f32[n,16,16,16]
  buffer conv: f32[n,32,14,14]
  stage map pad(n0 in n, c0 in 16, h0 in 16, w0 in 16) -> pad[n0, c0, h0, w0] = guard(and(and(h0 >= 1, h0 < 15), and(w0 >= 1, w0 < 15)), x[n0, c0, h0 - 1, w0 - 1], f32(0.0))
  stage reduce conv(n1 in n, o1 in 32, h1 in 14, w1 in 14; c1 in 16, r1 in 3, s1 in 3) -> conv[n1, o1, h1, w1] : acc = f32(0.0) then (acc + (pad[n1, c1, h1 + r1, w1 + s1] * w[o1, c1, r1, s1]))
  stage map relu(n2 in n, o2 in 32, h2 in 14, w2 in 14) -> o[n2, o2, h2, w2] = max((conv[n2, o2, h2, w2] + bias[o2]), f32(0.0))
  for ni in n parallel {
    for hb in 4 serial {
      alloc p: f32[6,16,16] @workspace {
        for pr in min(6, 16 - 4*hb) serial { for pw in 16 serial { for pc in 16 vectorized {
          block pad.map(ni, pc, 4*hb + pr, pw) {
            p[pr, pw, pc] = guard(and(and(4*hb + pr >= 1, 4*hb + pr < 15), and(pw >= 1, pw < 15)), x[ni, pc, 4*hb + pr - 1, pw - 1], f32(0.0)) } } } }
        for hi in min(4, 14 - 4*hb) serial {
          for wb in 2 serial {
            for ob in 2 serial {
              alloc t: f32[7,16] @register {
                for wi in 7 unrolled { for oi in 16 vectorized {
                  block conv.init(ni, 16*ob + oi, 4*hb + hi, 7*wb + wi) { t[wi, oi] = f32(0.0) } } }
                for r in 3 serial { for s in 3 serial { for c in 16 serial {
                  for wj in 7 unrolled { for oj in 16 vectorized {
                    block conv.update(ni, 16*ob + oj, 4*hb + hi, 7*wb + wj, c, r, s) {
                      t[wj, oj] = (t[wj, oj] + (p[hi + r, 7*wb + wj + s, c] * w[16*ob + oj, c, r, s])) } } } } } }
                for wk in 7 unrolled { for ok in 16 vectorized {
                  block relu.map(ni, 16*ob + ok, 4*hb + hi, 7*wb + wk) {
                    o[ni, 16*ob + ok, 4*hb + hi, 7*wb + wk] = max((t[wk, ok] + bias[16*ob + ok]), f32(0.0)) } } }
              }
            }
          }
        }
      }
    }
  }
}
"""

SOFTMAX = """
kernel @softmax(x: f32[b,n]) -> (o: f32[b,n]) {
  symbol b in [1, 100]
  symbol n in [1, 4096]
  buffer m: f32[b]
  buffer e: f32[b,n]
  buffer s: f32[b]
  stage reduce top(b0 in b; j0 in n) -> m[b0] : acc = f32(-inf) then max(acc, x[b0, j0])
  stage map exp(b1 in b, j1 in n) -> e[b1, j1] = exp((x[b1, j1] - m[b1]))
  stage reduce sum(b2 in b; j2 in n) -> s[b2] : acc = f32(0.0) then (acc + e[b2, j2])
  stage map div(b3 in b, j3 in n) -> o[b3, j3] = (e[b3, j3] / s[b3])
  for row in b parallel {
    alloc mt: f32[1] @register { alloc st: f32[1] @register { alloc et: f32[n] @workspace {
      block top.init(row) { mt[0] = f32(-inf) }
      for k in n serial { block top.update(row, k) { mt[0] = max(mt[0], x[row, k]) } }
      for jo in (n + 7) // 8 serial { for jl in 8 vectorized { if 8*jo + jl < n {
        block exp.map(row, 8*jo + jl) { et[8*jo + jl] = exp((x[row, 8*jo + jl] - mt[0])) } } } }
      block sum.init(row) { st[0] = f32(0.0) }
      for k2 in n serial { block sum.update(row, k2) { st[0] = (st[0] + et[k2]) } }
      for io in (n + 7) // 8 serial { for il in 8 vectorized { if 8*io + il < n {
        block div.map(row, 8*io + il) { o[row, 8*io + il] = (et[8*io + il] / st[0]) } } } }
    } } }
  }
}
"""

DEPTHWISE = """
kernel @depthwise(x: f32[n,32,57,57]{0,2,3,1}, w: f32[32,3,3]{1,2,0}) -> (o: f32[n,32,28,28]{0,2,3,1}) {
  symbol n in [1, 256]
  buffer d: f32[n,32,28,28]{0,2,3,1}
  stage reduce dw(n0 in n, c0 in 32, h0 in 28, w0 in 28; r0 in 3, s0 in 3) -> d[n0, c0, h0, w0] : acc = f32(0.0) then (acc + (x[n0, c0, 2*h0 + r0, 2*w0 + s0] * w[c0, r0, s0]))
  stage map clip(n1 in n, c1 in 32, h1 in 28, w1 in 28) -> o[n1, c1, h1, w1] = min(max(d[n1, c1, h1, w1], f32(0.0)), f32(6.0))
  for f in 28*n parallel {
    for wb in 7 serial { for cb in 4 serial {
      alloc t: f32[4,8] @register {
        for w2 in 4 unrolled { for c2 in 8 vectorized {
          block dw.init(f // 28, 8*cb + c2, f % 28, 4*wb + w2) { t[w2, c2] = f32(0.0) } } }
        for r in 3 unrolled { for s in 3 unrolled { for w3 in 4 unrolled { for c3 in 8 vectorized {
          block dw.update(f // 28, 8*cb + c3, f % 28, 4*wb + w3, r, s) {
            t[w3, c3] = (t[w3, c3] + (x[f // 28, 8*cb + c3, 2*(f % 28) + r, 8*wb + 2*w3 + s] * w[8*cb + c3, r, s])) } } } } }
        for w4 in 4 unrolled { for c4 in 8 vectorized {
          block clip.map(f // 28, 8*cb + c4, f % 28, 4*wb + w4) {
            o[f // 28, 8*cb + c4, f % 28, 4*wb + w4] = min(max(t[w4, c4], f32(0.0)), f32(6.0)) } } }
      }
    } }
  }
}
"""

BOTTLENECK = """
kernel @bottleneck(x: f32[h,14,16], we: f32[16,96], wd: f32[3,3,96], wp: f32[96,24]) -> (o: f32[h,14,24]) {
  symbol h in [1, 512]
  buffer e: f32[h,14,96]
  buffer a: f32[h,14,96]
  buffer q: f32[h + 2,16,96]
  buffer d: f32[h,14,96]
  buffer g: f32[h,14,96]
  buffer y: f32[h,14,24]
  stage reduce expand(h0 in h, w0 in 14, c0 in 96; k0 in 16) -> e[h0, w0, c0] : acc = f32(0.0) then (acc + (x[h0, w0, k0] * we[k0, c0]))
  stage map act(h1 in h, w1 in 14, c1 in 96) -> a[h1, w1, c1] = min(max(e[h1, w1, c1], f32(0.0)), f32(6.0))
  stage map pad(h2 in h + 2, w2 in 16, c2 in 96) -> q[h2, w2, c2] = guard(and(and(h2 >= 1, h2 < h + 1), and(w2 >= 1, w2 < 15)), a[h2 - 1, w2 - 1, c2], f32(0.0))
  stage reduce dw(h3 in h, w3 in 14, c3 in 96; r3 in 3, s3 in 3) -> d[h3, w3, c3] : acc = f32(0.0) then (acc + (q[h3 + r3, w3 + s3, c3] * wd[r3, s3, c3]))
  stage map act2(h4 in h, w4 in 14, c4 in 96) -> g[h4, w4, c4] = min(max(d[h4, w4, c4], f32(0.0)), f32(6.0))
  stage reduce project(h5 in h, w5 in 14, c5 in 24; k5 in 96) -> y[h5, w5, c5] : acc = f32(0.0) then (acc + (g[h5, w5, k5] * wp[k5, c5]))
  stage map out(h6 in h, w6 in 14, c6 in 24) -> o[h6, w6, c6] = y[h6, w6, c6]
  for hb in (h + 3) // 4 parallel {
    alloc qt: f32[6,16,96] @workspace { alloc gt: f32[4,14,96] @workspace {
      alloc at: f32[6,14,96] @workspace {
        for er in 6 serial { if and(4*hb + er >= 1, 4*hb + er < h + 1) {
          for ew in 14 serial { for eb in 12 serial { alloc et: f32[8] @register {
            for el in 8 vectorized { block expand.init(4*hb + er - 1, ew, 8*eb + el) { et[el] = f32(0.0) } }
            for ek in 16 serial { for em in 8 vectorized {
              block expand.update(4*hb + er - 1, ew, 8*eb + em, ek) {
                et[em] = (et[em] + (x[4*hb + er - 1, ew, ek] * we[ek, 8*eb + em])) } } }
            for en in 8 vectorized { block act.map(4*hb + er - 1, ew, 8*eb + en) {
              at[er, ew, 8*eb + en] = min(max(et[en], f32(0.0)), f32(6.0)) } }
          } } } } }
        for qr in min(6, h + 2 - 4*hb) serial { for qw in 16 serial { for qc in 96 serial {
          block pad.map(4*hb + qr, qw, qc) {
            qt[qr, qw, qc] = guard(and(and(4*hb + qr >= 1, 4*hb + qr < h + 1), and(qw >= 1, qw < 15)), at[qr, qw - 1, qc], f32(0.0)) } } } }
      }
      for dr in min(4, h - 4*hb) serial { for dx in 14 serial { for dc in 12 serial { alloc dt: f32[8] @register {
        for dl in 8 vectorized { block dw.init(4*hb + dr, dx, 8*dc + dl) { dt[dl] = f32(0.0) } }
        for r in 3 serial { for s in 3 serial { for dm in 8 vectorized {
          block dw.update(4*hb + dr, dx, 8*dc + dm, r, s) {
            dt[dm] = (dt[dm] + (qt[dr + r, dx + s, 8*dc + dm] * wd[r, s, 8*dc + dm])) } } } }
        for dn in 8 vectorized { block act2.map(4*hb + dr, dx, 8*dc + dn) {
          gt[dr, dx, 8*dc + dn] = min(max(dt[dn], f32(0.0)), f32(6.0)) } }
      } } } }
      for pr in min(4, h - 4*hb) serial { for px in 14 serial { alloc yt: f32[24] @register {
        for pl in 24 vectorized { block project.init(4*hb + pr, px, pl) { yt[pl] = f32(0.0) } }
        for pk in 96 serial { for pm in 24 vectorized {
          block project.update(4*hb + pr, px, pm, pk) {
            yt[pm] = (yt[pm] + (gt[pr, px, pk] * wp[pk, pm])) } } }
        for pn in 24 vectorized { block out.map(4*hb + pr, px, pn) { o[4*hb + pr, px, pn] = yt[pn] } }
      } } }
    } }
  }
}
"""

ATTENTION = """
kernel @attention(q: f32[heads,n,64], k: f32[heads,n,64], v: f32[heads,n,64]) -> (o: f32[heads,n,64]) {
  symbol heads in [1, 16]
  symbol n in [1, 2048]
  buffer s: f32[heads,n,n]
  buffer z: f32[heads,n,n]
  buffer m: f32[heads,n]
  buffer e: f32[heads,n,n]
  buffer l: f32[heads,n]
  buffer c: f32[heads,n,64]
  stage reduce score(b0 in heads, i0 in n, j0 in n; d0 in 64) -> s[b0, i0, j0] : acc = f32(0.0) then (acc + (q[b0, i0, d0] * k[b0, j0, d0]))
  stage map mask(b1 in heads, i1 in n, j1 in n) -> z[b1, i1, j1] = select(j1 <= i1, (s[b1, i1, j1] * f32(0.125)), f32(-inf))
  stage reduce top(b2 in heads, i2 in n; j2 in n) -> m[b2, i2] : acc = f32(-inf) then max(acc, z[b2, i2, j2])
  stage map exp(b3 in heads, i3 in n, j3 in n) -> e[b3, i3, j3] = exp((z[b3, i3, j3] - m[b3, i3]))
  stage reduce sum(b4 in heads, i4 in n; j4 in n) -> l[b4, i4] : acc = f32(0.0) then (acc + e[b4, i4, j4])
  stage reduce mix(b5 in heads, i5 in n, d5 in 64; j5 in n) -> c[b5, i5, d5] : acc = f32(0.0) then (acc + (e[b5, i5, j5] * v[b5, j5, d5]))
  stage map div(b6 in heads, i6 in n, d6 in 64) -> o[b6, i6, d6] = (c[b6, i6, d6] / l[b6, i6])
  for b in heads parallel { for ib in (n + 7) // 8 serial {
    alloc zt: f32[8,n] @workspace { alloc mt: f32[8] @register { alloc lt: f32[8] @register { alloc ct: f32[8,64] @workspace {
      for ia in min(8, n - 8*ib) serial { for ja in n serial { alloc st: f32[1] @register {
        block score.init(b, 8*ib + ia, ja) { st[0] = f32(0.0) }
        for d in 64 serial { block score.update(b, 8*ib + ia, ja, d) {
          st[0] = (st[0] + (q[b, 8*ib + ia, d] * k[b, ja, d])) } }
        block mask.map(b, 8*ib + ia, ja) {
          zt[ia, ja] = select(ja <= 8*ib + ia, (st[0] * f32(0.125)), f32(-inf)) }
      } } }
      for ic in min(8, n - 8*ib) serial {
        block top.init(b, 8*ib + ic) { mt[ic] = f32(-inf) }
        for jc in n serial { block top.update(b, 8*ib + ic, jc) { mt[ic] = max(mt[ic], zt[ic, jc]) } }
      }
      for ie in min(8, n - 8*ib) serial {
        block sum.init(b, 8*ib + ie) { lt[ie] = f32(0.0) }
        for je in n serial {
          block exp.map(b, 8*ib + ie, je) { zt[ie, je] = exp((zt[ie, je] - mt[ie])) }
          block sum.update(b, 8*ib + ie, je) { lt[ie] = (lt[ie] + zt[ie, je]) } }
      }
      for ig in min(8, n - 8*ib) serial {
        for dg in 64 vectorized { block mix.init(b, 8*ib + ig, dg) { ct[ig, dg] = f32(0.0) } }
        for jh in n serial { for dh in 64 vectorized {
          block mix.update(b, 8*ib + ig, dh, jh) { ct[ig, dh] = (ct[ig, dh] + (zt[ig, jh] * v[b, jh, dh])) } } }
        for di in 64 vectorized { block div.map(b, 8*ib + ig, di) { o[b, 8*ib + ig, di] = (ct[ig, di] / lt[ig]) } }
      }
    } } } }
  } }
}
"""

ARGMAX = """
kernel @argmax(x: f32[b,n]) -> (o: i64[b]) {
  symbol b in [1, 1000]
  symbol n in [1, 1000]
  buffer best: f32[b]
  stage reduce arg(b0 in b; j0 in n) -> best[b0], o[b0] : v = f32(-inf), i = i64(0) then select((x[b0, j0] > v), x[b0, j0], v), select((x[b0, j0] > v), cast(j0, i64), i)
  for row in b parallel {
    alloc t: f32[1] @register {
      block arg.init(row) { t[0] = f32(-inf) o[row] = i64(0) }
      for jo in n // 4 serial { for ji in 4 unrolled {
        block arg.update(row, 4*jo + ji) {
          let v2 = select((x[row, 4*jo + ji] > t[0]), x[row, 4*jo + ji], t[0]) {
            let i2 = select((x[row, 4*jo + ji] > t[0]), cast(4*jo + ji, i64), o[row]) {
              t[0] = v2 o[row] = i2 } } } } }
      for jt in n % 4 serial {
        block arg.update(row, 4*(n // 4) + jt) {
          let v3 = select((x[row, 4*(n // 4) + jt] > t[0]), x[row, 4*(n // 4) + jt], t[0]) {
            let i3 = select((x[row, 4*(n // 4) + jt] > t[0]), cast(4*(n // 4) + jt, i64), o[row]) {
              t[0] = v3 o[row] = i3 } } } }
    }
  }
}
"""

EMBEDDING = """
kernel @embedding(table: f32[1000,64], ids: i64[n], scale: f32[64]) -> (o: f32[n,64]) {
  symbol n in [0, 512]
  buffer t: f32[1000,64]
  stage map scaled(r0 in 1000, c0 in 64) -> t[r0, c0] = (table[r0, c0] * scale[c0])
  stage map pick(i0 in n, c1 in 64) -> o[i0, c1] = t[min(max(cast(ids[i0], index), 0), 999), c1]
  alloc u: f32[1000,64] @workspace {
    for r in 1000 serial { for cv in 64 vectorized {
      block scaled.map(r, cv) { u[r, cv] = (table[r, cv] * scale[cv]) } } }
    for i in n serial { for cw in 64 vectorized {
      block pick.map(i, cw) { o[i, cw] = u[min(max(cast(ids[i], index), 0), 999), cw] } } }
  }
}
"""

COPIES = """
kernel @copies(x: f32[64,64], y: f32[64,64]) -> (o: f32[64,64]) {
  buffer t: f32[64,64]
  stage map sum(i0 in 64, j0 in 64) -> t[i0, j0] = (x[i0, j0] + y[i0, j0])
  stage map flip(i1 in 64, j1 in 64) -> o[i1, j1] = (t[j1, i1] * x[i1, j1])
  for ib in 8 parallel { for jb in 8 serial {
    alloc xc: f32[8,8] @workspace { alloc oc: f32[8,8] @workspace {
      for i in 8 serial { for j in 8 serial {
        block x.copy(8*ib + i, 8*jb + j) { xc[i, j] = x[8*ib + i, 8*jb + j] } } }
      for i2 in 8 serial { for j2 in 8 vectorized {
        block flip.map(8*ib + i2, 8*jb + j2) {
          oc[i2, j2] = ((x[8*jb + j2, 8*ib + i2] + y[8*jb + j2, 8*ib + i2]) * xc[i2, j2]) } } }
      for i3 in 8 serial { for j3 in 8 vectorized {
        block flip.copy(8*ib + i3, 8*jb + j3) { o[8*ib + i3, 8*jb + j3] = oc[i3, j3] } } }
    } }
  } }
}
"""

ROLLING = """
kernel @rolling(x: f32[n,32]) -> (o: f32[n,32]) {
  symbol n in [3, 1000]
  buffer e: f32[n + 2,32]
  stage map exp(i0 in n + 2, c0 in 32) -> e[i0, c0] = guard(and(i0 >= 1, i0 < n + 1), exp(x[i0 - 1, c0]), f32(0.0))
  stage map sum(i1 in n, c1 in 32) -> o[i1, c1] = ((e[i1, c1] - e[i1 + 1, c1]) + e[i1 + 2, c1])
  alloc ring: f32[3,32] @workspace {
    for p in 2 serial { for pc in 32 vectorized {
      block exp.map(p, pc) { ring[p, pc] = guard(and(p >= 1, p < n + 1), exp(x[p - 1, pc]), f32(0.0)) } } }
    for i in n serial {
      for ec in 32 vectorized {
        block exp.map(i + 2, ec) { ring[(i + 2) % 3, ec] = guard(and(i + 2 >= 1, i + 2 < n + 1), exp(x[i + 1, ec]), f32(0.0)) } }
      for sc in 32 vectorized {
        block sum.map(i, sc) { o[i, sc] = ((ring[i % 3, sc] - ring[(i + 1) % 3, sc]) + ring[(i + 2) % 3, sc]) } }
    }
  }
}
"""

PADDED = """
kernel @padded(a: f32[m,64], b: f32[64,24]{0,1;1:16}) -> (o: f32[m,24]) {
  symbol m in [1, 64]
  buffer mm: f32[m,24]
  stage reduce dot(i0 in m, j0 in 24; k0 in 64) -> mm[i0, j0] : acc = f32(0.0) then (acc + (a[i0, k0] * b[k0, j0]))
  stage map store(i1 in m, j1 in 24) -> o[i1, j1] = mm[i1, j1]
  for i in m parallel { for jb in 2 serial {
    alloc t: f32[16] @register {
      for j2 in 16 vectorized { block dot.init(i, 16*jb + j2) { t[j2] = f32(0.0) } }
      for k in 64 serial { for j3 in 16 vectorized {
        block dot.update(i, 16*jb + j3, k) { t[j3] = (t[j3] + (a[i, k] * b[k, 16*jb + j3])) } } }
      for j4 in 16 vectorized { if 16*jb + j4 < 24 { block store.map(i, 16*jb + j4) { o[i, 16*jb + j4] = t[j4] } } }
    }
  } }
}
"""

OVERLAP = """
kernel @overlap(x: f32[n], y: f32[n]) -> (o: f32[n]) {
  symbol n in [8, 1000]
  stage map add(i0 in n) -> o[i0] = (x[i0] + y[i0])
  for i in (n + 7) // 8 serial { for j in 8 vectorized {
    block add.map(min(8*i, n - 8) + j) { o[min(8*i, n - 8) + j] = (x[min(8*i, n - 8) + j] + y[min(8*i, n - 8) + j]) } } }
}
"""

CUMSUM = """
kernel @cumsum(x: f32[b,n]) -> (o: f32[b,n]) {
  symbol b in [1, 64]
  symbol n in [0, 5000]
  stage scan total(i0 in b, t0 in n) -> o[i0, n - 1 - t0] : acc = f32(0.0) then exclusive (acc + x[i0, n - 1 - t0])
  for i in b parallel {
    alloc carried: f32[] @register {
      block total.init(i) { carried[] = f32(0.0) }
      for to in n // 4 serial { for ti in 4 unrolled {
        block total.update(i, 4*to + ti) {
          o[i, n - 1 - 4*to - ti] = carried[]
          carried[] = (carried[] + x[i, n - 1 - 4*to - ti]) } } }
      for tt in n % 4 serial {
        block total.update(i, 4*(n // 4) + tt) {
          o[i, n - 1 - 4*(n // 4) - tt] = carried[]
          carried[] = (carried[] + x[i, n - 1 - 4*(n // 4) - tt]) } }
    }
  }
}
"""

RUNNING = """
kernel @running(x: f32[b,64]) -> (o: f32[b,64], p: i64[b,64]) {
  symbol b in [1, 64]
  stage scan top(i0 in b, t0 in 64) -> o[i0, t0], p[i0, t0] : m = f32(-inf), a = i64(0) then select((x[i0, t0] > m), x[i0, t0], m), select((x[i0, t0] > m), cast(t0, i64), a)
  for i in b parallel {
    alloc mc: f32[] @register { alloc ac: i64[] @register {
      block top.init(i) { mc[] = f32(-inf) ac[] = i64(0) }
      for t in 64 serial {
        block top.update(i, t) {
          let m1 = select((x[i, t] > mc[]), x[i, t], mc[]) {
            let a1 = select((x[i, t] > mc[]), cast(t, i64), ac[]) { mc[] = m1 ac[] = a1 } }
          o[i, t] = mc[]
          p[i, t] = ac[] } }
    } }
  }
}
"""

SCATTER = """
kernel @scatter(x: f32[100,16], ids: i64[n], u: f32[n,16]) -> (o: f32[100,16]) {
  symbol n in [0, 300]
  stage scatter add(r0 in 100, c0 in 16; k0 in n, c1 in 16) -> o[min(max(cast(ids[k0], index), 0), 99), c1] : old = x[r0, c0] then (old + u[k0, c1])
  for r in 100 serial { for c in 16 vectorized { block add.init(r, c) { o[r, c] = x[r, c] } } }
  for k in n serial { for d in 16 vectorized {
    block add.update(k, d) {
      o[min(max(cast(ids[k], index), 0), 99), d] = (o[min(max(cast(ids[k], index), 0), 99), d] + u[k, d]) } } }
}
"""

LAST = """
kernel @last(x: f32[b,64], f: f32[64]) -> (o: f32[b]) {
  symbol b in [1, 64]
  buffer h: f32[b,64]
  stage scan state(i0 in b, t0 in 64) -> h[i0, t0] : s = f32(0.0) then ((s * f[t0]) + x[i0, t0])
  stage map last(i1 in b) -> o[i1] = h[i1, 63]
  for i in b parallel {
    alloc ht: f32[64] @workspace { alloc c: f32[] @register {
      block state.init(i) { c[] = f32(0.0) }
      for t in 64 serial {
        block state.update(i, t) {
          c[] = ((c[] * f[t]) + x[i, t])
          ht[t] = c[] } }
      block last.map(i) { o[i] = ht[63] }
    } }
  }
}
"""

KERNELS = {
    "matmul": MATMUL,
    "convolution": CONVOLUTION,
    "softmax": SOFTMAX,
    "depthwise": DEPTHWISE,
    "bottleneck": BOTTLENECK,
    "attention": ATTENTION,
    "argmax": ARGMAX,
    "embedding": EMBEDDING,
    "copies": COPIES,
    "rolling": ROLLING,
    "padded": PADDED,
    "cumsum": CUMSUM,
    "running": RUNNING,
    "scatter": SCATTER,
    "last": LAST,
    "overlap": OVERLAP,
}
