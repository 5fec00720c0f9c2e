addEventListener('beforeprint',()=>document.querySelectorAll('details').forEach(d=>{d.open=true}));
const show=()=>{const e=location.hash&&document.getElementById(location.hash.slice(1));
if(!e)return;for(let p=e.parentElement;p;p=p.parentElement)if(p.tagName==='DETAILS')p.open=true;
e.scrollIntoView({block:'center'})};addEventListener('hashchange',show);show();
